"""The queue that a lane shares with gates: read by one node alone, in the order of its stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.app.triggers import event
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.open import PLACE
from engine.lanes import scheduler
from engine.lanes.effects import LaneEffects
from engine.lanes.intake import EventQueue, InputItem, LaneInput, Mailbox
from engine.runtime.consumer import DeliveryCount
from engine.triggers.evaluate import TriggerEvaluator
from streams.errors import Unavailable
from streams.keys import lane_claim
from streams.memory import durable
from streams.model.events import LaneMoved
from streams.ports.log import START, Commit
from tests.engine.crew import crew_of
from tests.engine.lane_stage import (
    Point,
    all_taken,
    begun,
    event_queues,
    killed_at,
    lane_of,
    lane_reached,
    laned,
    publish,
    turns_of,
)
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LEASE_TTL_S,
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
    app = laned(**ONE_BY_ONE)

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

    async def receive(self, *, room, wait_s):
        found = await self._real.receive(room=room, wait_s=wait_s)
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
    app = laned(**ONE_BY_ONE)
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
    app = laned(**ONE_BY_ONE)
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
    app = laned(**ONE_BY_ONE)

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

    async def receive(self, *, room, wait_s):
        self.asked.append(f"receive {room}")
        await asyncio.Event().wait()

    async def pause(self):
        self.asked.append("pause")


@pytest.fixture
def source():
    return Watched()


@pytest.fixture
def intake(ports):
    context = crew_of(laned(), ports)
    return LaneInput(
        evaluator=TriggerEvaluator(context),
        dead_letters=DeadLetterWriter(ports, CLOCK),
        effects=LaneEffects(context),
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


# What an older version of the engine has left.


async def test_a_lane_goes_on_where_an_older_version_has_read_to(ports):
    await publish(ports, *NAMES, k=1)
    orders = ports.domain_events.add_stream("ORDERS")
    for number in range(3):
        orders.publish("orders.paid", b'{"k": 2}', {"Nats-Msg-Id": f"o{number}"})
    cursors = {HAPPENED: 2, "gone": 1, "ORDERS/orders.>": 1}
    old = Commit(id="old", at=CLOCK.now(), events=(LaneMoved(cursors=cursors),))
    await ports.log.append(ports.stack.lane("worker"), old, after=START)
    foreign = event(stream="ORDERS", subject="orders.>")
    app = laned(cluster=None, thing={"on": [event(HAPPENED), foreign], "concurrency_key": "k"})
    async with running(app, ports):
        for name in (*NAMES[2:], "ORDERS/o1", "ORDERS/o2"):
            await lived(ports, opening(app, id_=name).episode_id)
        await all_taken(ports)
        await lane_reached(ports, lambda lane: not lane.cursors)

    assert len(event_queues(ports)) == 2
    assert (await lane_of(ports)).newest_number == 4
