"""Skipped waits must really be waits, and time must really pass, or the contracts mean nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.contracts.time import ContractClock, ContractLoop, Stuck, running_loop

DAY_S = 86_400.0


async def test_a_wait_that_is_skipped_takes_its_time_on_every_clock():
    clock = ContractClock()
    began_s, began_at = clock.monotonic_s(), clock.now()
    running_loop().skip_waits()
    await clock.sleep(DAY_S)
    assert clock.monotonic_s() - began_s >= DAY_S
    assert (clock.now() - began_at).total_seconds() >= DAY_S


async def test_whoever_waits_for_less_goes_on_first():
    running_loop().skip_waits()
    woken = []

    async def wait(seconds):
        await asyncio.sleep(seconds)
        woken.append(seconds)

    await asyncio.gather(*(wait(seconds) for seconds in (3 * DAY_S, DAY_S, 2 * DAY_S)))
    assert woken == [DAY_S, 2 * DAY_S, 3 * DAY_S]


async def test_what_is_on_its_way_is_not_overtaken():
    running_loop().skip_waits()
    async with asyncio.timeout(DAY_S):
        for _ in range(100):
            await asyncio.sleep(0)
    assert running_loop().skipped_s == 0.0


async def test_no_wait_is_skipped_unless_it_was_asked_for():
    await asyncio.sleep(0.001)
    assert running_loop().skipped_s == 0.0


def test_a_test_that_would_wait_for_ever_is_noticed():
    async def forever():
        running_loop().skip_waits()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck), asyncio.Runner(loop_factory=ContractLoop) as runner:
        runner.run(forever())
