"""Signals are given in the order of their arrival, whichever node has which of them."""

from __future__ import annotations

import pytest

from engine.app.actions import wait
from engine.waits import arrivals
from engine.waits.arrivals import SignalArrivals
from engine.waits.signal import RESOLVED
from engine.waits.signals import QUEUE
from streams.errors import Unavailable
from streams.memory import memory_ports
from tests.engine.stage import CLOCK, Scripted, app_of, lived, open_episode, running
from tests.engine.waits.test_wait import blocked

REF = "payment:42"
THREE = Scripted(wait(REF), wait(REF), wait(REF))


async def said(ports, *numbers: int, ref: str = REF) -> None:
    for each in numbers:
        payload = {"ref": ref, "result": each, "by": "bank"}
        await ports.domain_events.publish(RESOLVED, payload, id=f"s{each}")


class Counting:
    """Events that count how often somebody reads them, and may be made anew."""

    def __init__(self, real):
        self.real, self.reads = real, 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    async def open(self, *args, **more):
        return Renewed(self, await self.real.open(*args, **more))

    async def stored(self, *args, **more):
        self.reads += 1
        return await self.real.stored(*args, **more)


class Renewed:
    """A queue that goes on when its stream has been made anew."""

    def __init__(self, events, real):
        self._events, self.real = events, real

    def __getattr__(self, name):
        return getattr(self.real, name)

    async def renew(self, events):
        self._events.real = events
        self.real = await events.open(QUEUE, [RESOLVED])


async def test_what_another_node_has_in_hand_and_does_not_give_comes_first(ports):
    app = app_of(THREE)
    frozen = await ports.domain_events.open(QUEUE, [RESOLVED])
    await said(ports, 1)
    (held,) = await frozen.receive(room=1, wait_s=0)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        await said(ports, 2, 3)
        assert (await lived(ports, id_)).seen == [1, 2, 3]
    assert held.content.id == "s1"


@pytest.fixture
async def other(ports):
    """The queue of signals, as another node has it."""
    return await ports.domain_events.open(QUEUE, [RESOLVED])


@pytest.fixture
async def events(ports):
    return Counting(ports.domain_events)


@pytest.fixture
async def here(events, other):
    return SignalArrivals(QUEUE, events)


async def noted(here, source, count=1):
    """Receive some signals on this node."""
    found = await source.receive(room=count, wait_s=0)
    for each in found:
        here.note(each)
    return found


async def numbers_before(here, delivery, ref=REF):
    earlier = await here.before(delivery.seq, ref)
    return [each.payload["result"] for each in earlier]


async def test_a_node_that_gets_all_of_them_reads_once(ports, here, events):
    source = await here.open()
    for number in range(5):
        await said(ports, number)
        (each,) = await noted(here, source)
        assert await numbers_before(here, each) == []
        here.is_given(each.seq)
    assert events.reads == 1


async def test_it_reads_again_once_another_node_was_delivered_one(ports, here, other, events):
    source = await here.open()
    await said(ports, 1, 2)
    (first,) = await noted(here, source)
    await numbers_before(here, first)
    here.is_given(first.seq)
    await other.receive(room=1, wait_s=0)
    await said(ports, 3)
    (third,) = await noted(here, source)
    assert await numbers_before(here, third) == [2]
    assert events.reads == 2


async def test_what_was_acknowledged_is_given(ports, here, other):
    source = await here.open()
    await said(ports, 1, 2)
    (first,) = await other.receive(room=1, wait_s=0)
    await first.ack()
    (second,) = await noted(here, source)
    assert await numbers_before(here, second) == []


async def test_once_a_node_keeps_many_it_asks_which_are_acknowledged(
    ports, here, other, monkeypatch
):
    monkeypatch.setattr(arrivals, "FORGET_AT", 2)
    source = await here.open()
    await said(ports, 1, 2, 3, 4)
    (first,) = await other.receive(room=1, wait_s=0)
    (second,) = await noted(here, source)
    assert await numbers_before(here, second) == [1]
    await first.ack()
    here.is_given(second.seq)
    await second.ack()
    await other.receive(room=1, wait_s=0)
    (fourth,) = await noted(here, source)
    assert await numbers_before(here, fourth) == [3]


async def test_only_those_of_the_same_reference_come_before_another(ports, here, other):
    source = await here.open()
    await said(ports, 1, ref="other:1")
    await said(ports, 2, 3)
    await other.receive(room=2, wait_s=0)
    (third,) = await noted(here, source)
    assert await numbers_before(here, third) == [2]
    assert await numbers_before(here, third, "other:1") == [1]


async def test_what_this_node_has_handed_back_still_comes_first(ports, here):
    source = await here.open()
    await said(ports, 1, 2)
    first, second = await noted(here, source, 2)
    await first.nak(delay_s=60)
    assert await numbers_before(here, second) == [1]


async def test_what_came_later_and_came_to_another_node_is_known_once_it_was_asked_for(
    ports, here, other
):
    source = await here.open()
    await said(ports, 1, 2, 3)
    (first,) = await other.receive(room=1, wait_s=0)
    await other.receive(room=1, wait_s=0)
    await first.nak()
    (again,) = await noted(here, source)
    assert await numbers_before(here, again) == []
    (third,) = await noted(here, source)
    assert (again.deliveries, third.nth - again.nth) == (2, 1)
    assert await numbers_before(here, third) == [1, 2], "though none is missing in the count"


async def test_what_cannot_be_asked_is_asked_again(ports, here, other, events, monkeypatch):
    source = await here.open()
    await said(ports, 1, 2)
    await other.receive(room=1, wait_s=0)
    (second,) = await noted(here, source)
    monkeypatch.setattr(arrivals, "EARLIER_MAX", 1)
    for _ in range(2):
        with pytest.raises(Unavailable, match="too many"):
            await here.before(second.seq, REF)
    monkeypatch.undo()
    assert await numbers_before(here, second) == [1]


@pytest.mark.parametrize("more", [{"by": ""}, {"by": 7}])
async def test_what_no_node_can_give_keeps_nobody_from_the_next(ports, more):
    app = app_of(Scripted(wait(REF)))
    frozen = await ports.domain_events.open(QUEUE, [RESOLVED])
    await ports.domain_events.publish(RESOLVED, {"ref": REF, "result": 1, **more}, id="bad")
    (held,) = await frozen.receive(room=1, wait_s=0)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        await said(ports, 2)
        assert (await lived(ports, id_)).seen == [2]
    assert held.content.id == "bad"


async def test_a_stream_that_was_made_anew_is_read_from_its_beginning(ports, here):
    source = await here.open()
    await said(ports, *range(5))
    (*_, last) = await noted(here, source, 5)
    assert await numbers_before(here, last) == [0, 1, 2, 3]
    anew = memory_ports(clock=CLOCK)
    await source.renew(anew.domain_events)
    await said(anew, 11, 12)
    await (await anew.domain_events.open(QUEUE, [RESOLVED])).receive(room=1, wait_s=0)
    (second,) = await noted(here, source)
    assert await numbers_before(here, second) == [11]
