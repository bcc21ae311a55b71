"""Operations on actors, nodes and orders of people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from engine.people.identity import Role
from projections.records import OrderSummary, ServiceLevelRecord
from vigil.client.client import Client
from vigil.client.types import (
    ActorRecord,
    ActorSummary,
    NodesView,
    OrderDrift,
    OrderOutcome,
    Refusal,
    StreamPosition,
)
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    Counts,
    DryRun,
    Limit,
    ListAnswer,
    NothingAsked,
    Operation,
    Past,
    Reason,
    counted,
    listed,
    said,
)

ORDER: Final = "orders:write"

REFUSALS_MAX: Final = 200
"""Most refusals of an expectation that are kept."""


class OneActor(ApiRequest, frozen=True, kw_only=True):
    """Which actor."""

    actor: str


class RefusalsOf(OneActor, frozen=True, kw_only=True):
    """Which expectation."""

    expectation: str
    limit: Annotated[int, Meta(ge=1, le=REFUSALS_MAX)] = 20


class ServiceLevels(ApiRequest, frozen=True, kw_only=True):
    """Of which actor."""

    actor: Annotated[str | None, Meta(description="None: of all.")] = None
    limit: Limit = 50


class OrderOfActor(OneActor, frozen=True, kw_only=True):
    """Which actor, and why."""

    reason: Reason = ""


class ResetBreaker(OrderOfActor, frozen=True, kw_only=True):
    """Which expectation, and why."""

    expectation: str


class OneNode(ApiRequest, frozen=True, kw_only=True):
    """Which node."""

    node: str


class UnsetMode(OneNode, frozen=True, kw_only=True):
    """The order of which node."""

    actor: Annotated[str, Meta(description="Only for this actor; empty: for all.")] = ""
    reason: Reason = ""


class SetMode(UnsetMode, frozen=True, kw_only=True):
    """A mode."""

    mode: Literal["full", "trigger_only", "disabled"]


class ListOrders(AskedOfList, frozen=True, kw_only=True):
    """Which orders."""

    node: str | None = None
    actor: str | None = None
    at: Past = None


class CountOrders(ApiRequest, frozen=True, kw_only=True):
    """Which orders."""

    node: str | None = None
    actor: str | None = None
    at: Past = None


class Rebuild(ApiRequest, frozen=True, kw_only=True):
    """Whether to change anything."""

    dry_run: DryRun = None


async def _nodes(client: Client, _: NothingAsked, __: str) -> NodesView:
    return await client.nodes.read()


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="actors.list",
        method="GET",
        path="/actors",
        does="List the actors that nodes have, that were defined, are paused or have episodes.",
        role=Role.VIEWER,
        scope=READ,
        asks=NothingAsked,
        gives=ListAnswer[ActorSummary],
        call=lambda client, *_: listed(client.actors.list()),
        commands=["actors list"],
    ),
    Operation(
        name="actors.get",
        method="GET",
        path="/actors/{actor}",
        does="Return one actor, and the state of each of its expectations.",
        role=Role.VIEWER,
        scope=READ,
        asks=OneActor,
        gives=ActorRecord,
        call=lambda client, asked, _: client.actors.get(asked.actor),
        commands=["actors show"],
    ),
    Operation(
        name="actors.refusals",
        method="GET",
        path="/actors/{actor}/expectations/{expectation}/refusals",
        does="List why events did not fire an expectation, the newest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=RefusalsOf,
        gives=ListAnswer[Refusal],
        call=lambda client, asked, _: listed(client.actors.refusals(**said(asked))),
        commands=["actors why"],
    ),
    Operation(
        name="actors.service_levels",
        method="GET",
        path="/service-levels",
        does="List what expectations promise and how many of their latest episodes have kept it.",
        role=Role.VIEWER,
        scope=READ,
        asks=ServiceLevels,
        gives=ListAnswer[ServiceLevelRecord],
        call=lambda client, asked, _: listed(client.actors.service_levels(**said(asked))),
    ),
    Operation(
        name="actors.pause",
        method="POST",
        path="/actors/{actor}/pause",
        does="Pause an actor: no node opens episodes of it. Open ones go on, new events wait.",
        scope=ORDER,
        asks=OrderOfActor,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.actors.pause(**said(asked), by=by),
        commands=["actors pause"],
    ),
    Operation(
        name="actors.resume",
        method="POST",
        path="/actors/{actor}/resume",
        does="Resume a paused actor.",
        scope=ORDER,
        asks=OrderOfActor,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.actors.resume(**said(asked), by=by),
        commands=["actors resume"],
    ),
    Operation(
        name="actors.reset",
        method="POST",
        path="/actors/{actor}/expectations/{expectation}/reset",
        does="Close the circuit breaker of an expectation, and forget what it has counted.",
        scope=ORDER,
        asks=ResetBreaker,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.actors.reset(**said(asked), by=by),
        commands=["actors reset"],
    ),
    Operation(
        name="nodes.list",
        method="GET",
        path="/nodes",
        does="List the nodes that are up or have an order, and what is paused.",
        role=Role.VIEWER,
        scope=READ,
        asks=NothingAsked,
        gives=NodesView,
        call=_nodes,
        commands=["mode"],
    ),
    Operation(
        name="nodes.positions",
        method="GET",
        path="/positions",
        does="List how far rows and reactors are, for each stream of commits and its partitions.",
        role=Role.VIEWER,
        scope=READ,
        asks=NothingAsked,
        gives=ListAnswer[StreamPosition],
        call=lambda client, *_: listed(client.nodes.positions()),
    ),
    Operation(
        name="nodes.read",
        method="GET",
        path="/nodes/{node}",
        does="Return one node, and what is paused.",
        role=Role.VIEWER,
        scope=READ,
        asks=OneNode,
        gives=NodesView,
        call=lambda client, asked, _: client.nodes.read(node=asked.node),
    ),
    Operation(
        name="nodes.set_mode",
        method="PUT",
        path="/nodes/{node}/mode",
        does="Set the mode of a node. It counts at once, and after restarts.",
        scope=ORDER,
        asks=SetMode,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.nodes.set_mode(**said(asked), by=by),
        commands=["mode"],
    ),
    Operation(
        name="nodes.unset_mode",
        method="DELETE",
        path="/nodes/{node}/mode",
        does="Remove the order of a mode: the node's own setting counts again.",
        scope=ORDER,
        asks=UnsetMode,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.nodes.unset_mode(**said(asked), by=by),
        commands=["mode"],
    ),
    Operation(
        name="orders.list",
        method="GET",
        path="/orders",
        does="List what people ordered of the running stack, the latest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListOrders,
        gives=ListAnswer[OrderSummary],
        call=lambda client, asked, _: listed(client.orders.list(**said(asked))),
        commands=["orders list"],
    ),
    Operation(
        name="orders.count",
        method="GET",
        path="/counts/orders",
        does="Count orders by what they change.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountOrders,
        gives=Counts,
        call=lambda client, asked, _: counted(client.orders.count(**said(asked))),
    ),
    Operation(
        name="orders.rebuild",
        method="POST",
        path="/orders/rebuild",
        does="Make the modes and pauses that nodes see what people have ordered.",
        scope=ORDER,
        asks=Rebuild,
        gives=ListAnswer[OrderDrift],
        call=lambda client, asked, _: listed(client.orders.rebuild(**said(asked))),
        commands=["orders rebuild"],
    ),
)
