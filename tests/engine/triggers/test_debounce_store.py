"""Holding events until their subject is calm: crashes, repeats, and other nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as replace_struct

from engine.triggers.debounce import PURPOSE, PendingDebounce, calming_in
from engine.triggers.debounce_store import TRIES_MAX, DebounceStore, fired_of
from engine.triggers.rules import Gated
from streams.errors import TooLarge, Unavailable, UnknownOutcome
from streams.layout import Stream
from streams.memory.timers import MemoryTimers
from streams.ports.domain_events import DomainEvent
from tests.engine.crew import crew_of
from tests.engine.stage import CLOCK, HAPPENED, Scripted, app_of

CALM_S = 60.0
LONG_AGO = CLOCK.now() - timedelta(seconds=1_000)


@pytest.fixture
def app():
    return app_of(Scripted(), subject_key="host", debounce_s=CALM_S)


def happened(number, *, host="a", payload=None):
    """Return the event that was stored `number` seconds after the first, long ago."""
    at = LONG_AGO + timedelta(seconds=number)
    said = {"host": host, **(payload or {})}
    return DomainEvent(id=f"x{number}", name=HAPPENED, payload=said, seq=number, at=at)


def thing_of(app):
    return app.actors["worker"].expectations["thing"]


def part_of(app, event, *, is_repeat=False):
    return Gated(expectation=thing_of(app), event=event, is_repeat=is_repeat)


def calming_of(event):
    return PendingDebounce(expectation="thing", event=event, since=event.at)


async def hold(app, ports, event, *, node="n1", is_repeat=False):
    debouncer = DebounceStore(crew_of(app, ports, node))
    return await debouncer.hold(part_of(app, event, is_repeat=is_repeat))


async def pending(ports, *, host="a"):
    return await ports.timers.pending("worker", PURPOSE, f"thing/{host}")


async def held(ports, *, host="a"):
    """Return the id of the event that is held, and how many it stands for besides."""
    timer = await pending(ports, host=host)
    assert timer is not None, "nothing is held"
    debounced = calming_in(timer.payload)
    return debounced.event.id, debounced.coalesced


async def test_an_event_is_held_until_its_subject_has_been_calm(app, ports):
    before = CLOCK.now()
    assert await hold(app, ports, happened(1))
    assert await held(ports) == ("x1", 0)
    due_in = (await pending(ports)).due_at - before
    assert timedelta(seconds=CALM_S) <= due_in <= timedelta(seconds=CALM_S + 5)


async def test_the_newest_is_held_and_knows_how_many_it_stands_for(app, ports):
    for number in (1, 2, 3):
        assert await hold(app, ports, happened(number), node=f"n{number}")
    assert await held(ports) == ("x3", 2)


async def test_each_subject_is_held_for_itself(app, ports):
    await hold(app, ports, happened(1, host="a"))
    await hold(app, ports, happened(2, host="b"))
    assert (await held(ports, host="a"), await held(ports, host="b")) == (("x1", 0), ("x2", 0))


async def test_an_older_event_that_comes_late_is_passed_over_and_counted(app, ports):
    await hold(app, ports, happened(2))
    due_at = (await pending(ports)).due_at
    assert not await hold(app, ports, happened(1))
    assert (await held(ports), (await pending(ports)).due_at) == (("x2", 1), due_at)


async def test_what_was_armed_and_not_answered_for_is_armed_once(app, ports):
    await hold(app, ports, happened(1))
    armed = await pending(ports)
    assert not await hold(app, ports, happened(1), is_repeat=True)
    assert await pending(ports) == armed


async def fire(app, ports, event):
    """Have `event` fire, as its timer would."""
    await hold(app, ports, event)
    debounced = calming_in((await pending(ports)).payload)
    await ports.timers.cancel("worker", PURPOSE, "thing/a")
    fired = fired_of(debounced, thing_of(app), is_repeat=False)
    assert (fired.event.id, fired.is_calm) == (event.id, True)
    await DebounceStore(crew_of(app, ports)).note_fired(fired)


@pytest.mark.parametrize("number", [1, 2])
async def test_what_comes_again_after_it_or_a_newer_one_has_fired_calls_for_nothing(
    app, ports, number
):
    await fire(app, ports, happened(2))
    assert not await hold(app, ports, happened(number), is_repeat=True)
    assert await pending(ports) is None


@pytest.mark.parametrize(("number", "is_superseded"), [(1, True), (2, False), (3, False)])
async def test_what_was_held_too_late_is_known_when_it_is_to_fire(
    app, ports, number, is_superseded
):
    """The one that fired may fire again: its node may have died before its episode was open."""
    await fire(app, ports, happened(2))
    late = fired_of(calming_of(happened(number)), thing_of(app), is_repeat=False)
    assert await DebounceStore(crew_of(app, ports)).is_superseded(late) == is_superseded


async def test_what_comes_again_and_is_newer_than_what_fired_is_held(app, ports):
    await fire(app, ports, happened(2))
    assert await hold(app, ports, happened(3), is_repeat=True)
    assert await held(ports) == ("x3", 0)


class Overtaken(MemoryTimers):
    """Timers of which another node arms one between a look and the arming that follows."""

    def __init__(self, ports, overtake, *, times=1):
        super().__init__(ports.log._streams, stack=ports.stack)
        self._overtake, self._left = overtake, times
        self._is_overtaking = False

    async def pending(self, actor, purpose, key):
        seen = await super().pending(actor, purpose, key)
        if self._left and not self._is_overtaking:
            self._left -= 1
            self._is_overtaking = True
            await self._overtake(self._left)
            self._is_overtaking = False
        return seen


@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (2, 1)])
async def test_of_two_nodes_at_the_same_moment_the_newest_event_stays(app, ports, ours, theirs):
    async def overtake(_):
        await hold(app, contested, happened(theirs), node="n2")

    contested = replace(ports, timers=Overtaken(ports, overtake))
    assert await hold(app, contested, happened(ours)) == (ours > theirs)
    assert await held(contested) == ("x2", 1)


async def test_a_node_that_always_comes_second_gives_the_event_back(app, ports):
    async def overtake(left):
        await hold(app, contested, happened(TRIES_MAX - left), node="n2")

    contested = replace(ports, timers=Overtaken(ports, overtake, times=TRIES_MAX))
    with pytest.raises(Unavailable, match="16 times another node was faster"):
        await hold(app, contested, happened(900))


class Slow(MemoryTimers):
    """Timers that take so long to arm that others come meanwhile; they count how often it is."""

    armed = 0

    def __init__(self, ports):
        super().__init__(ports.log._streams, stack=ports.stack)

    async def arm(self, timer, *, at, expecting=None, trace=""):
        self.armed += 1
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().arm(timer, at=at, expecting=expecting, trace=trace)


async def held_together(app, ports, events):
    """Hold `events` at the same time on one node, and return what became of each."""
    debouncer = DebounceStore(crew_of(app, ports))
    holding = [debouncer.hold(part_of(app, event)) for event in events]
    return await asyncio.gather(*holding, return_exceptions=True)


async def test_of_a_burst_in_any_order_every_event_counts_and_few_are_armed(app, ports):
    busy = replace(ports, timers=Slow(ports))
    burst = [happened(number * 7 % 200) for number in range(200)]
    await held_together(app, busy, burst)
    assert await held(busy) == ("x199", 199)
    assert busy.timers.armed == 2, "the first, and all that came meanwhile"


async def test_an_event_too_large_to_be_held_harms_none_that_is_held_with_it(app, ports):
    large = happened(5, payload={"text": "x" * 800_000})
    busy = replace(ports, timers=Slow(ports))
    came_to = await held_together(app, busy, [happened(1), happened(3), large, happened(4)])
    assert [type(each) for each in came_to] == [bool, bool, TooLarge, bool]
    assert await held(busy) == ("x4", 2)


async def test_the_next_in_line_tries_for_itself_if_the_first_one_fails(app, ports):
    class Away(Slow):
        async def arm(self, timer, *, at, expecting=None, trace=""):
            revision = await super().arm(timer, at=at, expecting=expecting, trace=trace)
            if self.armed == 1:
                raise UnknownOutcome("arm", detail="no answer")
            return revision

    busy = replace(ports, timers=Away(ports))
    came_to = await held_together(app, busy, map(happened, (1, 2, 3)))
    assert [type(each) for each in came_to] == [UnknownOutcome, bool, bool]
    assert await held(busy) == ("x3", 2)


async def test_what_nobody_can_read_gives_way(app, ports):
    await hold(app, ports, happened(1))
    subject = ports.stack.timer("worker", PURPOSE, "thing/a")
    newer = replace_struct(ports.timers._armed[subject], data=b"of a newer version")
    ports.timers._armed[subject] = newer
    assert await hold(app, ports, happened(2))
    assert await held(ports) == ("x2", 0)


async def test_an_event_too_large_to_be_held_says_so(app, ports):
    with pytest.raises(TooLarge):
        await hold(app, ports, happened(1, payload={"text": "x" * 800_000}))
    assert ports.log._streams[ports.stack.stream(Stream.WORK)].last_seq == 0
