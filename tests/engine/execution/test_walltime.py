"""The limit on the running time of an episode, and being cut off by it."""

from __future__ import annotations

import asyncio

import pytest

from engine.errors import EpisodeFailed
from engine.execution.driver import WallTime
from tests.engine.stage import CLOCK, WAIT_S


@pytest.mark.parametrize("limit_s", [0, 3_600])
async def test_who_is_cut_off_waits_no_longer(limit_s):
    wall = WallTime(CLOCK, limit_s=limit_s, used_s=0)

    async def wait():
        async with asyncio.timeout(WAIT_S), wall.limit:
            wall.cut_off()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
    assert wall.limit.expired()


async def test_a_barrier_is_not_cut_off_and_who_comes_out_of_it_is():
    wall, arrived = WallTime(CLOCK, limit_s=3_600, used_s=0), []

    async def write():
        wall.cut_off()
        for _ in range(10):
            await asyncio.sleep(0)
        arrived.append("all of it")

    async def work():
        async with asyncio.timeout(WAIT_S), wall.limit:
            await wall.standing_still(write)
            assert arrived == ["all of it"]
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()
    assert wall.limit.expired()


async def test_who_was_cut_off_and_did_not_stop_begins_no_barrier():
    wall = WallTime(CLOCK, limit_s=3_600, used_s=0)
    async with wall.limit:
        wall.cut_off()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            wall.cut_off()
        with pytest.raises(EpisodeFailed):
            await wall.standing_still(lambda: pytest.fail("it was written"))
