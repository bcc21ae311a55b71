"""Orders about all episodes that match: how many they are comes first, then the order.

The ids of those that were counted are sent along, so that nothing is ordered of what came since.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from htpy import Element, Node, p

from engine.people.identity import Role
from projections.records import EpisodeSummary
from vigil.client import Client
from vigil.client.page import LIMIT_MAX
from vigil.errors import Mistake
from vigil.web.api.operation import ITEMS_MAX
from vigil.web.drawing.parts import act, card, count, field, nothing
from vigil.web.screen import Drawn, PageRequest, Screen, address
from vigil.web.screens.episodes.bulk_orders import MATCHING, ORDERS, BulkOrder
from vigil.web.screens.episodes.episodes import table_of

SHOWN: Final = 10
"""How many of those that match are shown before something is ordered of all."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Count what matches, show the first, and draw the order."""
    named = asked.filter("do")
    if named is None:
        return Drawn(
            title="All that match", parts={"which": unsaid()}, up=("/episodes", "Episodes")
        )
    order = ORDERS.get(named)
    if order is None:
        raise Mistake(f"do: {named!r} is not one of {', '.join(ORDERS)}")
    wanted = asked.filter("status")
    statuses = [wanted] if wanted else sorted(order.statuses)
    if not order.statuses.issuperset(statuses):  # guard: bulk-order-of-fitting-states
        fitting = ", ".join(sorted(order.statuses))
        raise Mistake(f"{order.does}: only of episodes that are {fitting}")
    page = await client.episodes.list(
        status=statuses,
        actor=asked.filter("actor"),
        expectation=asked.filter("expectation"),
        subject=asked.filter("subject"),
        error_class=asked.filter("error"),
        limit=min(LIMIT_MAX, ITEMS_MAX),
    )
    return Drawn(
        title=f"{order.does} {count(len(page.items))} episodes",
        parts={
            "order": ordering(order, page.items, has_more=page.next is not None),
            "some": some(page.items, asked),
        },
        up=(back_of(asked), "Episodes"),
    )


def unsaid() -> Element:
    """Return what stands where nothing was chosen."""
    return card("Nothing chosen", nothing("Choose a status in the list of episodes first."))


def back_of(asked: PageRequest) -> str:
    """Return the list that the order is about."""
    return address("/episodes", **{name: asked.filter(name) for name in MATCHING})


def ordering(order: BulkOrder, episodes: Sequence[EpisodeSummary], *, has_more: bool) -> Node:
    """Return the form that orders it."""
    if not episodes:
        return card(order.does, nothing("Nothing matches any more."))
    ids = json.dumps([str(each.episode_id) for each in episodes])
    more = "There are more than that; order it again for the others."
    return card(
        f"{count(len(episodes))} match",
        p(".pad")[order.explains, f" {more}" if has_more else None],
        act(
            order.operation,
            f"{order.does} these {count(len(episodes))}",
            {"ids:json": ids, "back": "/episodes", **order.fields},
            field("reason", "Why", placeholder="Kept in the journal"),
            is_tall=True,
            is_danger=True,
        ),
    )


def some(episodes: Sequence[EpisodeSummary], asked: PageRequest) -> Element | None:
    """Return the first of those that match."""
    if not episodes:
        return None
    shown = episodes[:SHOWN]
    return card("The first of them", table_of(shown, asked), beside=f"{len(shown)} shown")


SCREEN: Final = Screen(
    path="/bulk",
    draw=draw,
    section="/episodes",
    role=Role.OPERATOR,
    is_live=False,
    orders=True,
    filters=("do", *MATCHING),
)
