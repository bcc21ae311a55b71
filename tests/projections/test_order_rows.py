"""There is a row for each order of people, with who gave it and why."""

from __future__ import annotations

import pytest

from projections.postgres.reader import list_orders
from projections.project import project as changes_of
from streams.errors import UnreadableEvent
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BreakerReset,
    LayoutSet,
    NodeModeSet,
    NodeModeUnset,
)
from streams.model.modes import NodeMode
from streams.ports.log import Recorded
from tests.projections.lives import commit, opened, rows_of, write, write_events

PAUSED = ActorPaused(actor_id="a", by="ann", reason="deploy")
RESUMED = ActorResumed(actor_id="a", by="bob")
ORDERS = {
    "mode.n1": NodeModeSet(node="n1", mode=NodeMode.DISABLED, actor_id="a", by="ann"),
    "mode.n2": NodeModeUnset(node="n2", by="ann"),
    "pause.a": PAUSED,
    "breaker.b.e": BreakerReset(actor_id="b", expectation_id="e", by="ann"),
    "layout": LayoutSet(partitions=4, by="ann"),
}
WHAT = ("change", "node", "actor_id", "expectation_id", "mode", "partitions")


async def test_each_order_is_a_row_about_its_thing(pool, stack):
    for key, event in ORDERS.items():
        await write_events(pool, event, stack=stack, subject=stack.order(key))

    rows = {row["order_key"]: row for row in await rows_of(pool, "orders", stack=stack)}

    assert {key: tuple(row[each] for each in WHAT) for key, row in rows.items()} == {
        "mode.n1": ("mode_set", "n1", "a", None, "disabled", None),
        "mode.n2": ("mode_unset", "n2", None, None, None, None),
        "pause.a": ("actor_paused", None, "a", None, None, None),
        "breaker.b.e": ("breaker_reset", None, "b", "e", None, None),
        "layout": ("layout_set", None, None, None, None, 4),
    }
    assert (rows["pause.a"]["person"], rows["pause.a"]["reason"]) == ("ann", "deploy")


async def test_orders_in_pieces_and_repeated_leave_the_same_rows(pool, stack):
    subject = stack.order("pause.a")
    records = [
        Recorded(subject=subject, seq=seq, commit=commit(*events))
        for seq, events in enumerate([(PAUSED, RESUMED), (PAUSED,)], start=1)
    ]
    await write(pool, changes_of(records, stack=stack), stack=stack)
    whole = await rows_of(pool, "orders", stack=stack)
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)

    assert await rows_of(pool, "orders", stack=stack) == whole
    assert sorted((row["journal_seq"], row["event_no"]) for row in whole) == [
        (1, 0), (1, 1), (2, 0),
    ]  # fmt: skip


async def test_orders_are_listed_the_latest_first_of_all_or_of_one_node_or_actor(pool, stack):
    for key, event in ORDERS.items():
        await write_events(pool, event, stack=stack, subject=stack.order(key))

    assert len(await list_orders(pool, stack)) == len(ORDERS)
    assert len(await list_orders(pool, stack, limit=2)) == 2
    (of_node,) = await list_orders(pool, stack, node="n2")
    assert of_node["change"] == "mode_unset"
    of_actor = await list_orders(pool, stack, actor="a")
    assert {row["order_key"] for row in of_actor} == {"mode.n1", "pause.a"}


def test_what_is_no_order_stops_the_rows_there(stack):
    stray = Recorded(subject=stack.order("pause.a"), seq=1, commit=commit(opened()))
    with pytest.raises(UnreadableEvent, match="EpisodeOpened in the life of an order"):
        changes_of([stray], stack=stack)
