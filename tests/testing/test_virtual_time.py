"""Time that jumps, in a loop that runs already."""

from __future__ import annotations

import asyncio
import time

import anyio.to_thread
import pytest

from vigil.testing.virtual_time import DAY_ONE, VirtualClock, virtual_time

DAY_S = 86_400.0


async def test_a_sleep_of_a_day_takes_no_time():
    began_s = time.monotonic()
    with virtual_time():
        await asyncio.sleep(DAY_S)
    assert time.monotonic() - began_s < 10


async def test_who_sleeps_wakes_in_the_order_of_the_deadlines():
    woken = []

    async def sleeper(seconds):
        await asyncio.sleep(seconds)
        woken.append(seconds)

    with virtual_time():
        await asyncio.gather(*map(sleeper, (3600, 60, 1800)))
    assert woken == [60, 1800, 3600]


async def test_time_goes_on_from_where_the_loop_was_and_is_real_again_afterwards():
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    with virtual_time():
        assert loop.time() - before_s < 1
        await asyncio.sleep(DAY_S)
        assert loop.time() - before_s >= DAY_S
    assert loop.time() - before_s < 10


async def test_a_wait_for_nanoseconds_over_and_over_comes_to_an_end():
    loop = asyncio.get_running_loop()
    with virtual_time():
        ends_s = loop.time() + 1e-6
        while loop.time() < ends_s:  # noqa: ASYNC110 - what must not hang
            await asyncio.sleep(1e-12)


@pytest.mark.parametrize("in_thread", [asyncio.to_thread, anyio.to_thread.run_sync])
async def test_time_stands_still_while_a_thread_works(in_thread):
    loop = asyncio.get_running_loop()
    with virtual_time():
        before_s = loop.time()
        async with asyncio.timeout(1):
            assert await in_thread(slow) == "done"
        assert loop.time() - before_s < 1


def slow():
    time.sleep(0.2)
    return "done"


async def test_who_waits_for_calm_gets_it_before_time_jumps():
    loop, done = asyncio.get_running_loop(), []

    async def work():
        for number in range(5):
            await asyncio.sleep(0)
            done.append(number)
        await asyncio.sleep(60)
        done.append("late")

    with virtual_time() as selector:
        began_s, task = loop.time(), asyncio.create_task(work())
        await selector.wait_settled()
        assert done == [0, 1, 2, 3, 4]
        assert loop.time() - began_s < 1
        await task


async def test_it_is_given_once():
    with virtual_time(), pytest.raises(RuntimeError, match="virtual already"), virtual_time():
        pass


async def test_a_wall_clock_leaps_and_the_loop_does_not_notice():
    loop = asyncio.get_running_loop()
    clock, before_s = VirtualClock(DAY_ONE, since_s=loop.time()), loop.time()
    clock.leap(DAY_S)
    assert (clock.now() - DAY_ONE).total_seconds() >= DAY_S
    assert loop.time() - before_s < 10
