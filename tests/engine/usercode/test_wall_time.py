"""The limit on the running time of an episode, and being cut off by it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from engine.errors import EpisodeFailed
from engine.usercode.cancel_scope import Canceled, CancelScope
from engine.usercode.wall_time import WallTime
from tests.engine.stage import CLOCK
from tests.simulation.time import SimClock, simulate

LIMIT_S = 10.0


def limited(
    *, limit_s: float = 3_600, clock=CLOCK, used_s: float = 0
) -> tuple[WallTime, CancelScope]:
    scope = CancelScope(clock)
    return WallTime(clock, scope, limit_s=limit_s, used_s=used_s), scope


@pytest.mark.parametrize("limit_s", [0, 3_600])
async def test_who_is_cut_off_waits_no_longer(limit_s):
    wall, scope = limited(limit_s=limit_s)

    async def wait():
        wall.cut_off()
        await asyncio.Event().wait()

    with pytest.raises(Canceled):
        await scope.run(wait(), name="waits")


async def test_a_barrier_is_not_cut_off_and_who_comes_out_of_it_is():
    arrived = []
    wall, scope = limited()

    async def write():
        wall.cut_off()
        for _ in range(10):
            await asyncio.sleep(0)
        arrived.append("all of it")

    async def work():
        await wall.paused_while(write)
        await asyncio.Event().wait()

    with pytest.raises(Canceled):
        await scope.run(work(), name="works")
    assert arrived == ["all of it"]


async def test_who_was_cut_off_and_did_not_stop_begins_no_barrier():
    wall, scope = limited()
    refused = []

    async def work():
        wall.cut_off()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            wall.cut_off()
        with pytest.raises(EpisodeFailed):
            await wall.paused_while(lambda: pytest.fail("it was written"))
        refused.append("it")

    with pytest.raises(Canceled):
        await scope.run(work(), name="works")
    assert refused == ["it"]


def cut_off_at(*stages: tuple[str, float], used_s: float = 0.0) -> float:
    """Return when an episode is cut off that works and stands still for so long, in turns."""

    async def story() -> float:
        clock = SimClock()
        wall, scope = limited(limit_s=LIMIT_S, clock=clock, used_s=used_s)

        async def work() -> None:
            for what, seconds in stages:
                wait = partial(clock.sleep, seconds)
                await (wall.paused_while(wait) if what == "still" else wait())
            await asyncio.Event().wait()

        with wall.counting(), pytest.raises(Canceled):
            await scope.run(work(), name="works")
        return clock.monotonic_s()

    return simulate(story())


@pytest.mark.parametrize(
    ("stages", "at_s"),
    [
        ([], 10),
        ([("works", 4.0)], 10),
        ([("still", 4.0)], 14),
        ([("works", 4.0), ("still", 4.0), ("works", 1.0), ("still", 4.0)], 18),
        ([("still", 40.0), ("works", 9.0)], 50),
        ([("works", 9.0), ("still", 40.0), ("still", 40.0)], 90),
        ([("still", 10.0), ("still", 0.25)], 20.25),
    ],
)
def test_only_running_counts(stages, at_s):
    assert cut_off_at(*stages) == pytest.approx(at_s, abs=0.01)


def test_what_earlier_attempts_used_counts():
    assert cut_off_at(("still", 3.0), used_s=9.0) == pytest.approx(4.0, abs=0.01)


async def test_without_a_limit_nothing_is_cut_off():
    wall, scope = limited(limit_s=0)

    async def work():
        await asyncio.sleep(0)
        await wall.paused_while(lambda: asyncio.sleep(0))
        return "done"

    with wall.counting():
        assert await scope.run(work(), name="works") == "done"
