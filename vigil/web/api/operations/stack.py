"""Operations on the stack as a whole: the inbox, costs, SQL, and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from projections.records import CostBy, CostSummary, InboxItem
from vigil.client.client import Client
from vigil.client.types import DoctorCheck
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
    Time,
    Words,
    counted,
    listed,
    said,
)

SQL: Final = "sql:read"
REPAIR: Final = "repairs:write"


class ListInbox(AskedOfList, frozen=True, kw_only=True):
    """Which items."""

    kind: Words = None
    actor: Words = None
    at: Past = None


class CountInbox(ApiRequest, frozen=True, kw_only=True):
    """Which items."""

    actor: Words = None
    at: Past = None


class SumCosts(ApiRequest, frozen=True, kw_only=True):
    """Which costs."""

    by: CostBy = "actor"
    since: Time | None = None
    until: Time | None = None
    limit: Limit = 50


class RunSql(ApiRequest, frozen=True, kw_only=True):
    """A statement that only reads."""

    text: str


class RecoverStack(ApiRequest, frozen=True, kw_only=True):
    """What to restart."""

    stale_after_s: Annotated[float, Meta(ge=0)] = 120.0
    dry_run: DryRun = None


class Reconcile(ApiRequest, frozen=True, kw_only=True):
    """What to compare."""

    actors: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()
    dry_run: DryRun = None
    reason: Reason = ""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What requests to models have cost."""

    items: Sequence[CostSummary]
    total: CostSummary | None
    """Of all requests, each once; null: there were none."""
    why_none: str


class SqlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    is_cut: bool
    """There were more than 10,000 rows."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was restarted, or would be."""

    counts: Mapping[str, int]
    episodes: Sequence[dict[str, Any]]
    instances: Sequence[dict[str, Any]]
    unserved: Sequence[dict[str, Any]]


class ReconcileAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was ended or started, or would be."""

    counts: Mapping[str, int]
    nodes: Sequence[str]
    compared: Sequence[str]
    """The actors with a known declaration."""
    skipped: Mapping[str, str]
    """The other actors, and why they were not touched."""
    left: int
    """How many repairs are left for another run."""


async def _costs(client: Client, asked: SumCosts, _: str) -> Costs:
    found = await client.costs(**said(asked))
    return Costs(items=found.items, total=found.total, why_none=found.why_none)


async def _sql(client: Client, asked: RunSql, _: str) -> SqlAnswer:
    found = await client.sql(asked.text)
    return SqlAnswer(columns=found.columns, rows=found.rows, is_cut=found.is_cut)


async def _recover(client: Client, asked: RecoverStack, _: str) -> Recovered:
    found = await client.repairs.recover(**said(asked))
    return Recovered(
        counts=found.counts,
        episodes=found.episodes,
        instances=found.instances,
        unserved=found.unserved,
    )


async def _reconcile(client: Client, asked: Reconcile, by: str) -> ReconcileAnswer:
    found = await client.repairs.reconcile(*asked.actors, **said(asked, "actors"), by=by)
    return ReconcileAnswer(
        counts=found.counts,
        nodes=found.nodes,
        compared=found.compared,
        skipped=found.skipped,
        left=found.left,
    )


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="inbox",
        method="GET",
        path="/inbox",
        does="List what waits for a person: the oldest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListInbox,
        gives=ListAnswer[InboxItem],
        call=lambda client, asked, _: listed(client.inbox(**said(asked))),
        commands=["inbox"],
    ),
    Operation(
        name="count_inbox",
        method="GET",
        path="/counts/inbox",
        does="Count what waits for a person, by its kind.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountInbox,
        gives=Counts,
        call=lambda client, asked, _: counted(client.count_inbox(**said(asked))),
    ),
    Operation(
        name="costs",
        method="GET",
        path="/costs",
        does="List what requests to models have cost, the dearest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=SumCosts,
        gives=Costs,
        call=_costs,
        commands=["costs"],
    ),
    Operation(
        name="sql",
        method="POST",
        path="/sql",
        does="Return the answer to one SQL statement that only reads, up to 10,000 rows.",
        scope=SQL,
        asks=RunSql,
        gives=SqlAnswer,
        call=_sql,
        commands=["sql"],
    ),
    Operation(
        name="repairs.doctor",
        method="GET",
        path="/doctor",
        does="Return what is as it must be, and what is not and how to repair it.",
        scope=READ,
        asks=NothingAsked,
        gives=ListAnswer[DoctorCheck],
        call=lambda client, *_: listed(client.repairs.doctor()),
        commands=["doctor"],
    ),
    Operation(
        name="repairs.recover",
        method="POST",
        path="/recover",
        does="Restart episodes and instances of workflows that no node is running.",
        scope=REPAIR,
        asks=RecoverStack,
        gives=Recovered,
        call=_recover,
        commands=["recover"],
    ),
    Operation(
        name="repairs.reconcile",
        method="POST",
        path="/reconcile",
        does="End what no live node declares any more, and start new schedules.",
        scope=REPAIR,
        asks=Reconcile,
        gives=ReconcileAnswer,
        call=_reconcile,
        commands=["reconcile"],
    ),
)
