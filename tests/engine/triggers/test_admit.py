"""The way in of what wakes an actor: how much there is room for, and who came too late."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.node.node import Node
from engine.runtime.slots import Slots
from engine.triggers.admit import Admission
from streams.keys import cooldown_key
from streams.layout import Stream
from streams.memory import memory_ports
from streams.memory.bucket import MemoryBucket
from streams.model.events import EpisodeOpened
from streams.model.modes import NodeMode
from streams.ports.delivery import ACK_WAIT_S
from tests.engine.crew import crew_of, evaluator_of, parts_of
from tests.engine.stage import CLOCK, HAPPENED, WAIT_S, Scripted, app_of
from tests.simulation.time import SimClock, simulate

COOLDOWN = cooldown_key("worker", "thing", "")


class Freezing(MemoryBucket):
    """A bucket whose first change freezes who asked for it, until others have its place."""

    _has_frozen = False

    async def put(self, key, value, *, after=None, ttl_s=None):
        revision = await super().put(key, value, after=after, ttl_s=ttl_s)
        if key == COOLDOWN and not self._has_frozen:
            self._has_frozen = True
            await super().put(key, b"another", ttl_s=600)
            await asyncio.sleep(2 * ACK_WAIT_S)
        return revision


class SlowToLook(MemoryBucket):
    """A bucket whose first look at a cooldown takes until others have the cause."""

    _has_frozen = False

    async def get(self, key):
        entry = await super().get(key)
        if key == COOLDOWN and not self._has_frozen:
            self._has_frozen = True
            await asyncio.sleep(2 * ACK_WAIT_S)
        return entry


async def test_what_several_queues_bring_at_one_moment_leaves_as_much_room_as_before(ports):
    """Each asked for as much as there was room for."""
    app = app_of(Scripted())
    context, names = crew_of(app, ports), app.actors["worker"].event_names()
    admission = Admission(parts_of(context), evaluator_of(context), room=Slots(1))
    source = await ports.domain_events.open("worker", names)
    for _ in range(3):
        ports.domain_events.publish_raw(HAPPENED, b"{ no", {})
    for delivery in await source.receive(room=3, wait_s=WAIT_S):
        await admission.let_in(delivery, [delivery.content], since_s=CLOCK.monotonic_s())
    assert admission.room.free == 0
    await context.tasks.finish()
    await source.close()
    assert admission.room.free == 1


@pytest.mark.parametrize("mode", [NodeMode.FULL, NodeMode.TRIGGER_ONLY])
def test_who_stood_still_until_a_message_was_given_to_others_opens_nothing(mode):
    """The others were refused what passed here, and answered: nobody would come back to it."""

    async def scenario():
        ports = memory_ports(clock=SimClock())
        ports = replace(ports, gates=Freezing(SimClock()))
        app = app_of(Scripted(), cooldown_s=600)
        node = Node(app, ports, name="n1", clock=SimClock(), mode=mode)
        task = asyncio.create_task(node.run())
        await asyncio.sleep(1)
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        await asyncio.sleep(4 * ACK_WAIT_S)
        node.stop()
        await task
        async with ports.log.follow(Stream.JOURNAL) as follower:
            records = await follower.receive(most=100, wait_s=0)
        return [event for record in records for event in record.commit.events]

    assert not [event for event in simulate(scenario()) if isinstance(event, EpisodeOpened)]


def test_who_stood_still_before_the_cooldown_began_does_not_begin_it():
    """It would rest from something that never fired."""

    async def scenario():
        clock = SimClock()
        ports = replace(memory_ports(clock=clock), gates=SlowToLook(clock))
        app = app_of(Scripted(), cooldown_s=600)
        context, names = crew_of(app, ports, clock=clock), app.actors["worker"].event_names()
        admission = Admission(parts_of(context), evaluator_of(context))
        source = await ports.domain_events.open("worker", names)
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
        parts = await admission.evaluator.rule(delivery.content, is_repeat=False)
        await admission.let_in(delivery, parts, since_s=clock.monotonic_s())
        await context.tasks.finish()
        await source.close()
        return await ports.gates.get(COOLDOWN), await ports.log.head()

    assert simulate(scenario()) == (None, 0)
