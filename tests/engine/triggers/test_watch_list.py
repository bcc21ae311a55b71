"""What a queue is for is looked up now and then, and counts as gone only after a second look."""

from __future__ import annotations

import pytest

from engine.triggers.events import QUEUE_LOOK_S, WatchList
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.memory.domain_events import MemoryDomainEvents
from tests.simulation.time import SimClock, simulate


class Counted(MemoryDomainEvents):
    """Says how often it was asked, and may be away."""

    asked, is_away = 0, False

    async def watched(self, actor):
        self.asked += 1
        if self.is_away:
            raise Unavailable("watched", detail="away")
        return await super().watched(actor)


@pytest.fixture
def world():
    world = memory_ports(clock=SimClock()).domain_events
    world.__class__ = Counted
    return world


def asked_for(world, *, times, before=lambda _: None):
    """Return what an actor's list says of `thing.old`, at each look in turn."""

    async def story():
        clock = SimClock()
        list_ = WatchList(world, clock, "worker")
        said = []
        for number in range(times):
            await before(number)
            said.append(await list_.is_gone("thing.old"))
            await clock.sleep(QUEUE_LOOK_S)
        return said

    return simulate(story())


def test_an_event_is_gone_once_two_looks_have_not_found_it(world):
    async def narrowed(number):
        if number == 0:
            await world.open("worker", ["thing.old", "thing.new"])
        if number == 1:
            await world.unwatch("worker", ["thing.old"])

    assert asked_for(world, times=4, before=narrowed) == [False, False, True, True]


def test_an_event_that_somebody_watches_again_is_not_gone(world):
    async def undone(number):
        if number == 2:
            await world.open("worker", ["thing.old"])

    assert asked_for(world, times=4, before=undone) == [False, True, False, False]


def test_nothing_is_gone_that_cannot_be_looked_up(world):
    async def away(number):
        world.is_away = True

    assert asked_for(world, times=3, before=away) == [False, False, False]


def test_many_questions_cost_one_look(world):
    async def story():
        list_ = WatchList(world, SimClock(), "worker")
        for _ in range(100):
            await list_.is_gone("thing.old")

    simulate(story())
    assert world.asked == 1
