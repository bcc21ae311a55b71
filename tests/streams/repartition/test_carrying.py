"""Timers while their stack is spread over other partitions: they fire all the time, and once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import nats as nats_py
import pytest

from streams.clock import SystemClock
from streams.errors import BadName
from streams.jetstream import connect
from streams.ports.timers import Timer
from streams.repartition import carry_timers
from streams.repartition.repartition import repartition
from streams.subjects import Stack
from tests.contracts.samples import SILENCE_S, deliveries_of, opened
from tests.streams.repartition.moves import Cut, cut_off_at, settings, told

MOVES = [(1, 4), (4, 1), (3, 4)]
PENDING = [f"pending-{n}" for n in range(20)]
SOON = [f"soon-{n}" for n in range(20)]
FIRED = [f"fired ü {n}" for n in range(20)]
LATER = timedelta(hours=1)
MOMENT = timedelta(seconds=1)
ALL_FIRED = 1.5 * MOMENT


@pytest.fixture(autouse=True)
def few_together(monkeypatch):
    monkeypatch.setattr(carry_timers, "TOGETHER_MAX", 4)


def timer(key, **payload):
    return Timer(actor="monitor", purpose="debounce", key=key, payload=payload)


async def fill(url, stack, partitions):
    """Make a stack with timers that have fired, fire soon, and are pending for long."""
    now = SystemClock().now()
    times = {**dict.fromkeys(SOON, MOMENT), **dict.fromkeys(PENDING, LATER)}
    async with connect(url, stack=stack, settings=settings(partitions)) as ports:
        for key in FIRED:
            await ports.timers.arm(timer(key, said=key), at=now, trace="00-aa-bb-01")
        for key, delay in times.items():
            await ports.timers.arm(timer(key, said=key), at=now + delay, expecting=0)
        async with opened(ports.timers.open("monitor")) as source:
            for delivery in await deliveries_of(source, len(FIRED), spare=len(FIRED)):
                await delivery.nak()
    return now


async def until(time):
    """Wait until the servers' clock, which is this machine's, has passed `time`."""
    while (left := time - SystemClock().now()) > timedelta(0):  # noqa: ASYNC110 - it is time that has to pass
        await asyncio.sleep(left.total_seconds())


async def assert_whole(url, stack, armed_at):
    """Check that what was due has fired once, and what is pending can be gone on from."""
    async with connect(url, stack=stack, settings=settings()) as ports:
        async with opened(ports.timers.open("monitor")) as source:
            count = len(FIRED) + len(SOON)
            deliveries = await deliveries_of(source, count, spare=count)
            for delivery in deliveries:
                await delivery.ack()
            assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []
        assert Counter(each.content.key for each in deliveries) == Counter(FIRED + SOON)
        assert all(each.content.payload == {"said": each.content.key} for each in deliveries)
        assert {each.trace for each in deliveries} == {"", "00-aa-bb-01"}
        for key in PENDING:
            pending = await ports.timers.pending("monitor", "debounce", key)
            assert (pending.payload, pending.due_at) == ({"said": key}, armed_at + LATER)
            await ports.timers.arm(timer(key, n=2), at=armed_at, expecting=pending.revision)
        async with opened(ports.timers.open("monitor")) as source:
            again = await deliveries_of(source, len(PENDING), spare=len(PENDING))
        assert sorted(each.content.key for each in again) == sorted(PENDING)


@pytest.mark.parametrize(("old", "new"), MOVES)
async def test_every_timer_comes_along(nats, stack, old, new):
    armed_at = await fill(nats.url, stack, old)
    await repartition(nats.url, stack=stack, to=new, tell=told, settings=settings())
    await assert_whole(nats.url, stack, armed_at)


@pytest.mark.parametrize(("old", "new"), MOVES)
async def test_a_timer_that_fires_on_the_way_fires_once(nats, stack, old, new):
    """Cut off while they are carried, so that they fire in the old streams and in the new."""
    armed_at = await fill(nats.url, stack, old)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=new, tell=cut_off_at("carried, timers"))
    await until(armed_at + ALL_FIRED)
    await repartition(nats.url, stack=stack, to=new, tell=told)
    await assert_whole(nats.url, stack, armed_at)


async def test_a_timer_that_fires_while_it_is_carried_is_carried_once(nats, stack, monkeypatch):
    armed_at = await fill(nats.url, stack, 1)
    store = carry_timers.TimerCopy._store

    async def store_late(self, groups, waiting):
        """Take so long over what is pending that it has fired before one looks at what is due."""
        await store(self, groups, waiting)
        await until(armed_at + ALL_FIRED)

    monkeypatch.setattr(carry_timers.TimerCopy, "_store", store_late)
    await repartition(nats.url, stack=stack, to=4, tell=told)
    await assert_whole(nats.url, stack, armed_at)


@pytest.mark.parametrize(("old", "new"), MOVES)
async def test_what_fired_on_the_way_is_there_when_the_move_is_taken_back(nats, stack, old, new):
    armed_at = await fill(nats.url, stack, old)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=new, tell=cut_off_at("carried, timers"))
    await until(armed_at + ALL_FIRED)
    await repartition(nats.url, stack=stack, to=old, tell=told)
    await assert_whole(nats.url, stack, armed_at)


async def test_what_strangers_put_among_the_timers_comes_along_as_it_is(nats, stack):
    await fill(nats.url, stack, 1)
    connection = await nats_py.connect(nats.url)
    for subject in (stack.due("other"), stack.timer("other", "p", "k")):
        await connection.jetstream().publish(subject, b"what?", headers={"said": "so"})
    await connection.close()
    await repartition(nats.url, stack=stack, to=4, tell=told)
    async with (
        connect(nats.url, stack=stack) as ports,
        opened(ports.timers.open("other")) as source,
    ):
        (delivery,) = await deliveries_of(source, 1)
    assert (delivery.content.data, delivery.content.headers["said"]) == (b"what?", "so")


async def test_what_is_where_no_timer_can_be_ends_the_move(nats, stack):
    await fill(nats.url, stack, 1)
    connection = await nats_py.connect(nats.url)
    await connection.jetstream().publish(f"{stack.due('monitor')}.x", b"stray")
    await connection.close()
    with pytest.raises(BadName, match="no timer fires into"):
        await repartition(nats.url, stack=stack, to=4, tell=told)
    assert await repartition(nats.url, stack=stack, to=1, tell=told) == Stack(stack.name, 1)
