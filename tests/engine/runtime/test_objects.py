"""Objects that are named again and again are put once a day."""

from __future__ import annotations

import pytest

from engine.runtime import objects
from engine.runtime.objects import AGAIN_S, LastingObjects
from streams.memory.objects import MemoryObjects
from tests.simulation.time import SimClock, simulate


class Counting(MemoryObjects):
    """Notes what it is given."""

    def __init__(self, clock):
        super().__init__(clock)
        self.given = []

    async def put(self, data):
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


def test_an_object_that_is_named_still_is_put_again_after_a_day():
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


def test_of_many_objects_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "REMEMBERED_MAX", 2)
    _, store, kept = lasting()

    async def names():
        for data in (b"1", b"2", b"3", b"3", b"1"):
            await kept.put(data)

    simulate(names())
    assert store.given == [b"1", b"2", b"3", b"1"]
