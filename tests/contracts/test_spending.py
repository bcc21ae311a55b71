"""What the windows of a stack promise, on every bucket: no limit is passed, whoever writes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from engine.errors import BudgetExceeded
from engine.runtime.store import Turns
from engine.spending.store import SpendingStore
from engine.spending.window import Spent, window_at
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.model.money import NO_USD

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
CENT = Decimal("0.01")


class At(SystemClock):
    """It is always the same time, and pauses are real."""

    def now(self):
        return AT


def window(actor="monitor", per="day", limit="1.00"):
    return window_at(actor, per, AT, limit=Decimal(limit))


@pytest.fixture
def store(ports):
    return a_node(ports)


def a_node(ports):
    """Return the windows as one node has them: it shares its turns with no other one."""
    return SpendingStore(ports.gates, At(), Turns())


async def total(store, *windows):
    return [(await store.spent(each)).total for each in windows]


async def test_what_is_reserved_and_settled_is_there_for_every_node(ports, store):
    await store.reserve([window()], Decimal("0.50"), ref="e1:1")
    assert await a_node(ports).spent(window()) == Spent(reserved={"e1:1": Decimal("0.50")})
    await a_node(ports).settle([window()], Decimal("0.07"), ref="e1:1")
    assert await store.spent(window()) == Spent(used=Decimal("0.07"))


async def test_a_reservation_takes_from_every_window_or_from_none(store):
    day, month = window(), window("", "month", "0.40")
    await store.reserve([day, month], Decimal("0.30"), ref="e1:1")
    with pytest.raises(BudgetExceeded, match="the stack"):
        await store.reserve([day, month], Decimal("0.30"), ref="e2:1")
    assert await total(store, day, month) == [Decimal("0.30")] * 2


async def test_what_is_refused_late_is_given_back_where_it_was_taken(ports, store):
    day, month = window(), window("", "month", "0.40")

    class Raced(SpendingStore):
        """Another node takes the month after this one has looked and taken the day."""

        async def _take(self, window, usd, ref):
            if not window.actor:
                await store.reserve([month], Decimal("0.40"), ref="e2:1")
            return await super()._take(window, usd, ref)

    raced = Raced(ports.gates, At(), Turns())
    with pytest.raises(BudgetExceeded, match="the stack"):
        await raced.reserve([day, month], Decimal("0.30"), ref="e1:1")
    assert await total(store, day, month) == [NO_USD, Decimal("0.40")]


async def test_what_a_dead_node_has_reserved_in_part_is_taken_once(ports, store):
    day, month = window(), window("", "month", "0.40")
    await a_node(ports).reserve([day], Decimal("0.30"), ref="e1:1")
    await store.reserve([day, month], Decimal("0.30"), ref="e1:1")
    assert await total(store, day, month) == [Decimal("0.30")] * 2


async def test_nodes_that_race_never_pass_a_limit_and_leave_nothing_of_it(ports):
    day, month = window(limit="0.20"), window("", "month", "0.15")
    nodes = [a_node(ports) for _ in range(3)]

    async def spend(number):
        node, ref = nodes[number % 3], f"e{number}:1"
        try:
            await node.reserve([day, month], CENT, ref=ref)
        except BudgetExceeded:
            return NO_USD
        await node.settle([day, month], CENT, ref=ref)
        return CENT

    spent = await asyncio.gather(*map(spend, range(30)))
    assert sum(spent) == Decimal("0.15")
    for each in (day, month):
        assert await nodes[0].spent(each) == Spent(used=Decimal("0.15"))


async def test_what_a_newer_version_has_written_is_left_alone(ports, store):
    await ports.gates.put(window().key, b'{"used": {"eur": 1}}', ttl_s=60)
    with pytest.raises(Unavailable, match="newer version"):
        await store.reserve([window()], CENT, ref="e1:1")
