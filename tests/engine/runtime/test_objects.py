"""How objects are put that are named again and again, and those that can be missed."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from engine.runtime import objects
from engine.runtime.objects import (
    AGAIN_S,
    AWAY_S,
    PUT_S_MAX,
    LastingObjects,
    StoreOutage,
    best_effort,
)
from streams.errors import Unavailable
from streams.memory.objects import MemoryObjects
from streams.ports.objects import KEPT_SHARE
from tests.simulation.time import SimClock, simulate

DAY_S = 86_400.0


class Counting(MemoryObjects):
    """Notes what it is given."""

    def __init__(self, clock):
        super().__init__(clock)
        self.given = []

    async def put(self, data, *, about=""):
        self.given.append(data)
        return await super().put(data)


def lasting():
    clock = SimClock()
    store = Counting(clock)
    return clock, store, LastingObjects(store, clock)


def test_an_object_is_put_once_however_often_it_is_named():
    _, store, kept = lasting()

    async def names():
        return [await kept.put(data) for data in (b"1", b"2", b"1", b"1")]

    first, second, *again = simulate(names())
    assert again == [first, first] != [second, second]
    assert store.given == [b"1", b"2"]


def test_an_object_that_is_named_still_is_put_again():
    clock, store, kept = lasting()

    async def names():
        await kept.put(b"1")
        await clock.sleep(AGAIN_S - 1.0)
        await kept.put(b"1")
        assert store.given == [b"1"]
        await clock.sleep(1.0)
        await kept.put(b"1")

    simulate(names())
    assert store.given == [b"1", b"1"]


def test_an_object_is_kept_for_eight_tenths_of_a_day_after_it_was_named_last():
    """The shortest time that a store may have, of which it keeps nine tenths at least."""
    clock = SimClock()
    puts: list[float] = []

    class Store(MemoryObjects):
        async def put(self, data, *, about=""):
            puts.append(clock.monotonic_s())
            return await super().put(data)

    async def names():
        kept, left_s = LastingObjects(Store(clock), clock), list[float]()
        for _ in range(20):
            await kept.put(b"1")
            left_s.append(puts[-1] + KEPT_SHARE * DAY_S - clock.monotonic_s())
            await clock.sleep(7_000.0)
        return min(left_s)

    assert simulate(names()) >= 0.8 * DAY_S


def test_of_many_objects_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "REMEMBERED_MAX", 2)
    _, store, kept = lasting()

    async def names():
        for data in (b"1", b"2", b"3", b"3", b"1"):
            await kept.put(data)

    simulate(names())
    assert store.given == [b"1", b"2", b"3", b"1"]


class Store:
    """A store that is away at first, and counts what it is asked."""

    def __init__(self, clock, *, answers):
        self.clock, self.answers, self.asked = clock, answers, 0

    async def put(self):
        self.asked += 1
        if self.answers:
            raise Unavailable("objects", detail="no quorum")
        await self.clock.sleep(3_600.0)

    async def works(self):
        self.asked += 1
        return "digest"


@pytest.mark.parametrize(("answers", "wait_s"), [(True, 0.0), (False, PUT_S_MAX)])
def test_a_store_that_is_away_holds_up_one_put_in_a_minute(answers, wait_s):
    clock = SimClock()
    outage, store = StoreOutage(), Store(clock, answers=answers)

    async def puts():
        begun_s = clock.monotonic_s()
        first = [await best_effort(store.put, outage, clock) for _ in range(3)]
        took_s = clock.monotonic_s() - begun_s
        await clock.sleep(AWAY_S)
        return [*first, await best_effort(store.put, outage, clock)], took_s

    assert simulate(puts()) == ([None] * 4, wait_s)
    assert store.asked == 2


def test_that_a_store_is_away_and_back_is_told_once():
    clock = SimClock()
    outage, store = StoreOutage(), Store(clock, answers=True)

    async def puts():
        for _ in range(3):
            await best_effort(store.put, outage, clock)
            await clock.sleep(AWAY_S)
        return [await best_effort(store.works, outage, clock) for _ in range(2)]

    with capture_logs() as told:
        assert simulate(puts()) == ["digest", "digest"]
    assert [(each["log_level"], each["event"]) for each in told] == [
        ("warning", "object store away: prompts of models are not kept"),
        ("info", "object store back: prompts of models are kept again"),
    ]
    assert told[0]["error"] == "objects: no quorum"
