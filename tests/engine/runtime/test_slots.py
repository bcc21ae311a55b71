"""So many at a time."""

from __future__ import annotations

import asyncio

from engine.runtime.slots import Slots

LONG_S = 10.0


async def test_there_are_as_many_places_as_said():
    slots = Slots(2)
    assert [slots.try_take() for _ in range(3)] == [True, True, False]
    slots.give_back()
    assert slots.free == 1
    assert slots.try_take()


async def test_who_waits_longest_gets_the_next_place_and_nobody_overtakes():
    slots = Slots(1)
    slots.try_take()
    order = []

    async def wait(name):
        assert await slots.take(within_s=LONG_S, unless=asyncio.Event())
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    slots.give_back()
    assert not slots.try_take()
    slots.give_back()
    await asyncio.gather(*waiting)
    assert order == ["first", "second"]
    assert slots.free == 0


async def test_who_has_waited_in_vain_holds_no_place():
    slots = Slots(1)
    slots.try_take()
    assert not await slots.take(within_s=0, unless=asyncio.Event())
    slots.give_back()
    assert slots.free == 1


async def test_who_is_told_to_wait_no_more_leaves_without_a_place():
    slots, called_off = Slots(1), asyncio.Event()
    slots.try_take()
    waiting = asyncio.create_task(slots.take(within_s=10 * LONG_S, unless=called_off))
    await asyncio.sleep(0)
    called_off.set()
    async with asyncio.timeout(LONG_S):
        assert not await waiting
    slots.give_back()
    assert slots.free == 1


async def test_who_is_cancelled_with_a_place_in_hand_gives_it_back():
    slots = Slots(1)
    slots.try_take()
    waiting = asyncio.create_task(slots.take(within_s=LONG_S, unless=asyncio.Event()))
    await asyncio.sleep(0)
    slots.give_back()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert slots.free == 1


async def test_who_waits_for_any_place_hears_how_many_are_free():
    slots = Slots(1)
    slots.try_take()
    waiting = asyncio.create_task(slots.wait_free())
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.give_back()
    assert await waiting == 1


async def test_what_has_come_though_the_last_place_is_taken_is_counted_too():
    slots = Slots(2)
    asked_for = [await slots.wait_free(), await slots.wait_free()]
    for _ in range(sum(asked_for)):
        slots.take_late()
    frees = []
    for _ in range(sum(asked_for)):
        slots.give_back()
        frees.append(slots.free)
    assert frees == [0, 0, 1, 2]


async def test_who_waits_gets_no_place_before_what_came_late_has_left():
    slots = Slots(1)
    for _ in range(2):
        slots.take_late()
    waiting = asyncio.create_task(slots.take(within_s=LONG_S, unless=asyncio.Event()))
    await asyncio.sleep(0)
    slots.give_back()
    assert not (await asyncio.wait([waiting], timeout=0.01))[0]
    slots.give_back()
    assert await waiting
    assert slots.free == 0


async def test_when_there_are_fewer_places_who_has_one_keeps_it_and_counts():
    slots = Slots(3)
    for _ in range(3):
        slots.try_take()
    slots.resize(2)
    frees = []
    for _ in range(3):
        slots.give_back()
        frees.append(slots.free)
    assert frees == [0, 1, 2]


async def test_when_there_are_more_places_who_waits_gets_one():
    slots = Slots(1)
    slots.try_take()
    waiting = asyncio.create_task(slots.take(within_s=LONG_S, unless=asyncio.Event()))
    await asyncio.sleep(0)
    slots.resize(3)
    assert await waiting
    assert slots.free == 1


async def test_all_have_left_only_when_the_last_one_has():
    slots = Slots(2)
    await slots.wait_empty()
    for _ in range(2):
        slots.try_take()
    leaving = asyncio.create_task(slots.wait_empty())
    slots.resize(1)
    for _ in range(2):
        await asyncio.sleep(0)
        assert not leaving.done()
        slots.give_back()
    await leaving
