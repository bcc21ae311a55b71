"""Timers on a server that crashes, on a wire that loses answers, and on an older stack."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from streams.clock import SystemClock
from streams.errors import TimerConflict, Unavailable, UnknownOutcome
from streams.jetstream import LinkSettings, connect
from streams.jetstream.messages import stored
from streams.ports.timers import Timer
from tests.contracts.samples import SILENCE_S, deliveries_of, opened
from tests.streams.jetstream.wire import eventually

LATER = timedelta(hours=1)
SOON = timedelta(seconds=0.5)
PAST = -LATER
NAME = ("monitor", "debounce", "web-1")


def in_(delay):
    return SystemClock().now() + delay


def timer(key="web-1", **payload):
    return Timer(actor="monitor", purpose="debounce", key=key, payload=payload)


def keys(deliveries):
    return sorted(each.content.key for each in deliveries)


async def is_armed(timers, payload):
    async def is_there():
        pending = await timers.pending(*NAME)
        return pending is not None and pending.payload == payload

    await eventually(is_there)


async def test_timers_survive_a_killed_server_and_fire_once(own_nats, ports):
    names = [f"web-{n}" for n in range(100)]
    await asyncio.gather(*(ports.timers.arm(timer(name), at=in_(SOON)) for name in names))
    later = await ports.timers.arm(timer("later", n=1), at=in_(LATER))
    own_nats.kill()
    own_nats.restart()
    async with opened(ports.timers.open("monitor")) as source:
        deliveries = await deliveries_of(source, len(names))
        for delivery in deliveries:
            await delivery.ack()
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []
    assert keys(deliveries) == sorted(names)
    assert (await ports.timers.pending("monitor", "debounce", "later")).revision == later


async def test_what_was_due_while_the_server_was_away_fires_when_it_is_back(own_nats, ports):
    due_at = in_(SOON)
    await ports.timers.arm(timer(), at=due_at)
    own_nats.kill()
    while (left := due_at - SystemClock().now()) > timedelta(0):  # noqa: ASYNC110 - the server has to miss it
        await asyncio.sleep(left.total_seconds())
    own_nats.restart()
    async with opened(ports.timers.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content.due_at == due_at < delivery.content.fired_at


async def test_a_due_timer_waits_while_no_node_runs(own_nats, stack):
    async with connect(own_nats.url, stack=stack) as ports:
        await ports.timers.arm(timer(), at=in_(PAST))
    own_nats.kill()
    own_nats.restart()
    async with (
        connect(own_nats.url, stack=stack) as ports,
        opened(ports.timers.open("monitor")) as source,
    ):
        assert keys(await deliveries_of(source, 1)) == ["web-1"]


async def test_a_canceled_timer_and_one_that_was_put_off_do_not_fire_at_their_times(direct):
    due_at = in_(4 * SOON)
    async with opened(direct.timers.open("monitor")) as source:
        for key in ("canceled", "put-off", "kept"):
            await direct.timers.arm(timer(key), at=due_at)
        await direct.timers.cancel("monitor", "debounce", "canceled")
        await direct.timers.arm(timer("put-off"), at=in_(LATER))
        assert keys(await deliveries_of(source, 1)) == ["kept"]
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []


async def test_a_timer_armed_twice_for_a_lost_answer_fires_once(wire, wired, direct):
    async with opened(direct.timers.open("monitor")) as source:
        wire.loses_answers = True
        arming = asyncio.create_task(wired.timers.arm(timer(n=1), at=in_(PAST)))
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
        wire.cut()
        await arming
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []


async def test_an_arming_that_expected_none_is_recognized(wire, wired, direct):
    wire.loses_answers = True
    arming = asyncio.create_task(wired.timers.arm(timer(n=1), at=in_(LATER), expecting=0))
    await is_armed(direct.timers, {"n": 1})
    wire.cut()
    assert await arming == (await direct.timers.pending(*NAME)).revision


async def test_an_arming_that_a_rival_overtook_is_a_conflict(wire, wired, direct):
    first = await direct.timers.arm(timer(n=0), at=in_(LATER))
    wire.loses_requests = True
    arming = asyncio.create_task(wired.timers.arm(timer(n=1), at=in_(LATER), expecting=first))
    await direct.timers.arm(timer(n=2), at=in_(LATER), expecting=first)
    wire.cut()
    with pytest.raises(TimerConflict):
        await arming
    assert (await direct.timers.pending(*NAME)).payload == {"n": 2}


async def test_an_arming_that_may_have_fired_before_its_answer_is_not_called_a_conflict(
    wire, wired, direct
):
    """One replica compares revisions before ids, so nothing tells this from a canceled one."""
    first = await direct.timers.arm(timer(n=0), at=in_(LATER))
    async with opened(direct.timers.open("monitor")) as source:
        wire.loses_answers = True
        arming = asyncio.create_task(wired.timers.arm(timer(n=1), at=in_(PAST), expecting=first))
        (delivery,) = await deliveries_of(source, 1)
        wire.cut()
        with pytest.raises(UnknownOutcome, match="may have fired"):
            await arming
    assert delivery.content.payload == {"n": 1}


async def test_a_late_cancel_takes_no_timer_that_was_armed_after_it_began(direct, monkeypatch):
    look = stored.last

    async def look_and_be_overtaken(link, stream, subject):
        found = await look(link, stream, subject)
        await direct.timers.arm(timer(n=2), at=in_(LATER))
        return found

    await direct.timers.arm(timer(n=1), at=in_(LATER))
    monkeypatch.setattr(stored, "last", look_and_be_overtaken)
    await direct.timers.cancel(*NAME)
    monkeypatch.undo()
    assert (await direct.timers.pending(*NAME)).payload == {"n": 2}


async def test_without_a_server_no_timer_is_armed_or_read(own_nats, stack):
    settings = LinkSettings(patience_s=0.3, request_timeout_s=0.2)
    async with connect(own_nats.url, stack=stack, settings=settings) as ports:
        own_nats.kill()
        with pytest.raises(Unavailable):
            await ports.timers.arm(timer(), at=in_(LATER))
        with pytest.raises(Unavailable):
            await ports.timers.pending(*NAME)
        with pytest.raises(Unavailable):
            await ports.timers.cancel(*NAME)
