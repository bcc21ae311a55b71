"""The same work for many items: bounded, in order, and over once one fails."""

from __future__ import annotations

import asyncio

import pytest

from engine.runtime.gather import gather_bounded


class Crowd:
    """Counts who is under way at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.ended: list[int] = []

    async def double(self, item: int) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            return 2 * item
        finally:
            self.now -= 1
            self.ended.append(item)


async def test_what_is_made_of_each_item_is_in_the_order_of_the_items():
    async def waiting(item: int) -> int:
        for _ in range(item):
            await asyncio.sleep(0)
        return item

    assert await gather_bounded(waiting, [3, 1, 2], in_flight_max=3) == [3, 1, 2]


async def test_no_more_than_the_most_are_under_way_at_a_time():
    crowd = Crowd()
    assert await gather_bounded(crowd.double, range(9), in_flight_max=2) == [*range(0, 18, 2)]
    assert crowd.most == 2


async def test_nothing_is_made_of_nothing():
    assert await gather_bounded(Crowd().double, [], in_flight_max=1) == []


async def test_the_first_error_is_raised_as_it_is_once_all_others_have_ended():
    crowd, begun = Crowd(), asyncio.Event()

    async def fails_last(item: int) -> int:
        if item == 2:
            await begun.wait()
            raise LookupError("two")
        crowd.now += 1
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            crowd.now -= 1
        return item

    with pytest.raises(LookupError, match="two"):
        await gather_bounded(fails_last, range(5), in_flight_max=3)
    assert crowd.now == 0


async def test_whoever_waits_and_is_canceled_leaves_nothing_behind():
    crowd = Crowd()

    async def never(_: int) -> None:
        crowd.now += 1
        try:
            await asyncio.Event().wait()
        finally:
            crowd.now -= 1

    waiting = asyncio.create_task(gather_bounded(never, range(5), in_flight_max=3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert crowd.now == 0
