"""The queue that a lane shares with gates: read by one node alone, in the order of its stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.open import PLACE
from engine.lanes import scheduler
from engine.lanes.effects import LaneEffects
from engine.lanes.intake import EventQueue, InputItem, LaneInput, Mailbox
from engine.runtime.consumer import DeliveryCount
from streams.errors import Unavailable
from streams.keys import lane_claim
from streams.memory import durable
from streams.model.events import LaneMoved
from streams.ports.delivery import QueuePosition
from streams.ports.log import Commit
from tests.engine.crew import breakers_of, crew_of, evaluator_of
from tests.engine.lane_stage import (
    Point,
    begun,
    killed_at,
    laned,
    placed,
    publish,
    turns_of,
)
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LEASE_TTL_S,
    LOOK_S,
    doomed,
    eventually,
    lived,
    opening,
    running,
)

LONG_S = 600.0
ACK_WAIT_S = 2 * LEASE_TTL_S
"""Longer than the lease: what a dead node had comes again only some time after the takeover."""


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch):
    monkeypatch.setattr(durable, "ACK_WAIT_S", ACK_WAIT_S)
    monkeypatch.setattr(scheduler, "REDELIVERED_S", ACK_WAIT_S + 0.2)
    monkeypatch.setattr(scheduler, "UNSETTLED_S", ACK_WAIT_S + 0.2)


ONE_BY_ONE = {"thing": {"concurrency_key": "k"}, "cluster": None}
NAMES = ["x0", "x1", "x2", "x3"]


async def check_order(ports, app):
    for name in NAMES:
        await lived(ports, opening(app, id_=name).episode_id)
    begun_ = (await turns_of(ports)).begun_by_key()
    assert begun_ == {"1": [f"event:{name}" for name in NAMES]}


# In order, whatever happens.


async def test_what_a_dead_node_had_comes_before_newer_events(ports):
    app = placed(**ONE_BY_ONE)

    def is_lane(subject, commit, *, after):
        return ".lane." in subject

    async with killed_at(app, ports, Point("log", "append", is_lane)):
        await publish(ports, "x0", k=1)
    await publish(ports, *NAMES[1:], k=1)
    async with running(app, ports, "n2"):
        await check_order(ports, app)


class Losing:
    """A world of which a queue loses its second delivery, or what it is to hand back."""

    def __init__(self, real, *, loses):
        self._real, self._loses, self.has_lost = real, loses, False

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def open(self, *args, **more):
        return LosingSource(await self._real.open(*args, **more), self, self._loses)


class LosingSource:
    def __init__(self, real, world, loses):
        self._real, self._world, self._loses = real, world, loses

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def receive(self, **more):
        found = await self._real.receive(**more)
        lost = [each for each in found if each.content.id == self._loses and each.deliveries == 1]
        self._world.has_lost |= bool(lost)
        for each in lost:  # It went to somebody else.
            taken = each.durable._unanswered
            taken[each.seq] = replace(taken[each.seq], to=None)
        return [each for each in found if each not in lost]

    async def hand_back(self, **more):
        if self._loses or self._world.has_lost:
            return await self._real.hand_back(**more)
        self._world.has_lost = True
        return False


@pytest.mark.parametrize("lost", ["x1", "x2"])
async def test_what_was_lost_on_its_way_comes_before_newer_events(ports, lost):
    app = laned(**ONE_BY_ONE)
    world = Losing(ports.domain_events, loses=lost)
    async with running(app, replace(ports, domain_events=world)):
        await begun(ports)
        await publish(ports, *NAMES, k=1)
        await check_order(ports, app)

    assert world.has_lost


async def frozen_source(ports):
    """Return the queue as a node has it that scheduled and stands still."""
    return await ports.domain_events.open("worker", [HAPPENED])


async def begun_and_dead(ports, app):
    """Have a node schedule, and die without a word."""
    async with doomed(app, ports):
        await begun(ports)
        await eventually(lambda: _state_of_lane(ports) == "claimed")


async def test_what_a_frozen_node_hands_back_comes_in_order_with_what_it_had_on_its_way(ports):
    app = laned(**ONE_BY_ONE)
    await begun_and_dead(ports, app)
    await publish(ports, *NAMES, k=1)
    frozen = await frozen_source(ports)
    first, *others = await frozen.receive(room=10, wait_s=0)
    for each in others:  # What it asked for last was on its way to it, and is not handed back.
        await each.nak()
    async with running(app, ports, "n2"):
        await check_order(ports, app)
    assert first.content.id == "x0"


class Waking:
    """A world in which a frozen node wakes and pulls once more, just before another one does."""

    def __init__(self, real, frozen, *, before):
        self._real, self._frozen, self._before, self.taken = real, frozen, before, []

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def open(self, actor, names, **more):
        source = await self._real.open(actor, names, **more)
        return WakingSource(source, self) if actor == "worker" else source

    async def wake(self, before):
        if before == self._before and not self.taken:
            self.taken += await self._frozen.receive(room=1, wait_s=0)


class WakingSource:
    def __init__(self, real, world):
        self._real, self._world = real, world

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def position(self):
        await self._world.wake("position")
        return await self._real.position()

    async def receive(self, **more):
        await self._world.wake("receive")
        return await self._real.receive(**more)


@pytest.mark.parametrize("before", ["position", "receive"])
async def test_what_a_frozen_node_pulls_when_it_wakes_comes_before_newer_events(ports, before):
    app = laned(**ONE_BY_ONE)
    await begun_and_dead(ports, app)
    await publish(ports, *NAMES, k=1)
    world = Waking(ports.domain_events, await frozen_source(ports), before=before)
    async with running(app, replace(ports, domain_events=world), "n2"):
        await check_order(ports, app)
    assert [each.content.id for each in world.taken] == ["x0"]


async def handed_back_for_long(ports):
    """Have a node of another version take the first event, and hand it back with a delay."""
    (first,) = await (await frozen_source(ports)).receive(room=1, wait_s=0)
    await first.nak(delay_s=LONG_S)


async def began_without_the_first(ports, app):
    for name in NAMES[1:]:
        await lived(ports, opening(app, id_=name).episode_id)
    begun_ = (await turns_of(ports)).begun_by_key()
    assert begun_ == {"1": [f"event:{name}" for name in NAMES[1:]]}


def anew(lines):
    again = (each for each in lines if each["event"] == "reading the lane anew")
    return [each for each in again if "others still have" in each["why"]]


async def test_what_was_handed_back_with_a_delay_does_not_keep_the_others_for_ever(
    ports, monkeypatch
):
    monkeypatch.setattr(scheduler, "REDELIVERED_S", LOOK_S)
    app = laned(**ONE_BY_ONE)
    await begun_and_dead(ports, app)
    await publish(ports, *NAMES, k=1)
    await handed_back_for_long(ports)
    with capture_logs() as lines:
        async with running(app, ports, "n2"):
            await began_without_the_first(ports, app)
    assert len(anew(lines)) >= scheduler.OVERTAKEN_MAX


async def test_nobody_waits_for_what_was_handed_back_with_a_delay_before_an_orderly_end(ports):
    app = laned(**ONE_BY_ONE)
    async with running(app, ports):
        await begun(ports)
    await publish(ports, *NAMES, k=1)
    await handed_back_for_long(ports)
    with capture_logs() as lines:
        async with running(app, ports, "n2"):
            await began_without_the_first(ports, app)
    assert anew(lines) == []


class RefusingOnce:
    """A log that is not available when the first episode is to be opened."""

    def __init__(self, real):
        self._real, self._has_refused = real, False

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def append(self, subject, commit, *, after):
        if ".episode." in subject and not self._has_refused:
            self._has_refused = True
            raise Unavailable(subject, detail="refused")
        return await self._real.append(subject, commit, after=after)


async def test_what_was_handed_back_in_vain_comes_before_newer_events(ports):
    app = placed(**ONE_BY_ONE)
    world = Losing(ports.domain_events, loses="")
    async with running(app, replace(ports, domain_events=world, log=RefusingOnce(ports.log))):
        await begun(ports)
        await publish(ports, "x0", k=1)
        await eventually(lambda: world.has_lost)
        await publish(ports, *NAMES[1:], k=1)
        await check_order(ports, app)


class Overtaken:
    """A log in which a rival moves the lane just before its scheduler does, once."""

    def __init__(self, real):
        self._real, self._is_over = real, False

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def append(self, subject, commit, *, after):
        if ".lane." in subject and not self._is_over:
            self._is_over = True
            rival = Commit(id="rival", at=CLOCK.now(), events=(LaneMoved(left=("nobody",)),))
            await self._real.append(subject, rival, after=after)
        return await self._real.append(subject, commit, after=after)


async def test_what_was_opened_in_vain_asks_for_a_place_only_once_its_events_have_come_again(ports):
    """Requests for a place have an order of their own, and would overtake older events."""
    app = placed(**ONE_BY_ONE)
    async with running(app, ports):
        await begun(ports)
    await publish(ports, *NAMES, k=1)
    async with running(app, replace(ports, log=Overtaken(ports.log)), "n2"):
        await check_order(ports, app)

    later = [opening(app, id_=name).episode_id for name in NAMES]
    assert sorted(await ports.timers.keys("worker", PLACE)) == sorted(later)


def _holder_of_lane(ports):
    claim = ports.leases._bucket[lane_claim("worker")].change.claim
    return "" if claim is None else claim.owner_node


def _state_of_lane(ports):
    stored = ports.leases._bucket.get(lane_claim("worker"))
    return "" if stored is None else stored.change.state


async def test_a_lane_that_is_not_settled_is_not_given_up(ports, monkeypatch):
    """The next node would not know that it has to wait."""
    app = placed(**ONE_BY_ONE)

    def is_lane(subject, commit, *, after):
        return ".lane." in subject

    async with killed_at(app, ports, Point("log", "append", is_lane)):
        await publish(ports, "x0", k=1)
    monkeypatch.setattr(scheduler, "UNSETTLED_S", LONG_S)
    async with running(app, ports, "n2"):
        await eventually(lambda: _holder_of_lane(ports) == "n2")
    assert _state_of_lane(ports) == "claimed"


def test_a_count_knows_what_is_missing():
    class Delivered:
        def __init__(self, nth):
            self.nth = nth

    count = DeliveryCount()
    assert count.check([Delivered(7), Delivered(8)])
    assert count.check([])
    assert count.check([Delivered(9)])
    assert not count.check([Delivered(11)])
    count.begin_anew()
    assert count.check([Delivered(20)])


# What is asked for, and what is not.


class Watched:
    """A source that notes what it is asked for, and has nothing."""

    pending = 0

    def __init__(self):
        self.asked = []

    async def position(self):
        return QueuePosition()

    async def receive(self, *, room, wait_s, check):
        check()
        self.asked.append(f"receive {room}")
        await asyncio.Event().wait()

    async def pause(self):
        self.asked.append("pause")

    async def hand_back(self, *, is_whole):
        self.asked.append("hand back" if is_whole else "hand back: not whole")
        return is_whole

    async def close(self):
        self.asked.append("close")


@pytest.fixture
def source():
    return Watched()


@pytest.fixture
def intake(ports):
    context = crew_of(laned(), ports)
    return LaneInput(
        evaluator=evaluator_of(context),
        dead_letters=DeadLetterWriter(ports, CLOCK),
        effects=LaneEffects(context, breakers_of(context)),
        mailbox=Mailbox(),
        over=asyncio.Event(),
        takes_causes=True,
        check_lease=lambda: None,
    )


def queue_of(source):
    async def open_():
        return source

    return EventQueue(label="events", open=open_, fan_out=1)


async def test_nothing_is_asked_for_without_the_lease(intake, source):
    def refuse():
        raise Unavailable("lane.worker", detail="it was frozen for long")

    intake.mailbox.allow(5)
    intake.check_lease = refuse
    with pytest.raises(Unavailable, match="frozen"):
        await intake.take_events(queue_of(source))
    assert source.asked == []


async def test_nothing_is_asked_for_while_a_dead_node_may_have_older_events(intake, source):
    intake.mailbox.allow(5)
    intake.unsettled_s = LONG_S
    reading = asyncio.create_task(intake.take_events(queue_of(source)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert source.asked == []
    reading.cancel()


async def test_who_has_lost_the_lease_hands_nothing_back(intake, source):
    reading = asyncio.create_task(intake.take_events(queue_of(source)))
    intake.mailbox.allow(5)
    await eventually(lambda: source.asked)

    def refuse():
        raise Unavailable("lane.worker", detail="it was frozen for long")

    intake.check_lease = refuse
    assert not await intake.hand_back()
    assert source.asked[1:] == ["hand back: not whole", "close"]
    reading.cancel()


async def test_a_full_lane_hands_back_what_comes_once_all_that_is_older_is_settled(intake, source):
    item = InputItem()
    intake.mailbox.put([item])
    batch = await intake.mailbox.take()
    reading = asyncio.create_task(intake.take_events(queue_of(source)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert source.asked == []
    intake.mailbox.finish(batch)
    await eventually(lambda: source.asked == ["pause"])
    intake.mailbox.allow(3)
    await eventually(lambda: source.asked == ["pause", "receive 3"])
    reading.cancel()
