"""Orders: what people have switched in the running stack, when and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from htpy import Element, Node, a

from projections.records import OrderSummary
from vigil.client import Client
from vigil.client.page import Page
from vigil.web.drawing.parts import (
    Cell,
    card,
    field,
    narrowing,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    titled,
    when,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen

FILTERS: Final = ("node", "actor", "after")

CELLS: Final = (
    Cell("Order", is_main=True),
    Cell("Change"),
    Cell("By"),
    Cell("When", is_number=True),
)

_LOOKS: Final[Mapping[str, str]] = {
    "actor_paused": "paused",
    "actor_resumed": "up",
    "mode_set": "blocked",
    "mode_unset": "up",
    "breaker_reset": "closed",
}
"""Change → the state that it looks like."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a page of orders, and draw it."""
    page = await client.orders.list(
        node=asked.filter("node"),
        actor=asked.filter("actor"),
        at=asked.at,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    return Drawn(
        title="Orders",
        beside=a(".btn", href="/decisions")["Who approved what"],
        parts={"filters": filters(asked), "list": list_of(asked, page)},
    )


def filters(asked: PageRequest) -> Element:
    """Return what the list can be narrowed to."""
    return narrowing(
        asked,
        field("actor", "Actor", asked.filter("actor")),
        field("node", "Node", asked.filter("node")),
    )


def list_of(asked: PageRequest, page: Page[OrderSummary]) -> Element:
    """Return a page of orders."""
    if not page.items:
        hint = "Who pauses an actor, sets the mode of a node or resets a breaker stands here."
        return card("None", nothing(page.why_none or "Nobody has ordered anything.", hint))
    return card(
        "Latest first",
        rows_of(
            CELLS,
            [_row(each, asked) for each in page.items],
            keys=[f"{each.order_key}.{each.journal_seq}.{each.event_no}" for each in page.items],
        ),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def _row(order: OrderSummary, asked: PageRequest) -> tuple[Node, ...]:
    about = (
        order.actor_id and f"actor {order.actor_id}",
        order.expectation_id,
        order.node and f"node {order.node}",
        order.mode,
        f"{order.partitions} partitions" if order.partitions else None,
    )
    page = place("actors", order.actor_id) if order.actor_id else place("nodes")
    return (
        titled(
            page, " · ".join(filter(None, about)) or order.order_key, order.reason or "no reason"
        ),
        pill(_LOOKS.get(order.change, "ok"), order.change.replace("_", " ")),
        order.person,
        when(order.at, asked.now),
    )


SCREEN: Final = Screen(path="/orders", draw=draw, section="/orders", filters=FILTERS, has_past=True)
