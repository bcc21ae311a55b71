"""A function that catches everything: it is cut off all the same, and does nothing more."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress

import pytest

from engine.app.strategy import ConvergeResult
from engine.episodes.cancel import cancel
from engine.errors import Interrupted
from streams.model.events import EndStatus, EpisodeConverged, StepRecorded
from streams.model.triggers import Budget
from tests.engine.functions.stage import Ledger, app_of, play
from tests.engine.stage import doomed, lived, open_episode, ports_in_memory, running
from tests.engine.stage import life as life_of


async def hang(args, ctx):
    await asyncio.Event().wait()


async def swallows(ctx, trigger):
    """Catch whatever ends a call, and converge."""
    with suppress(BaseException):
        await ctx.call("hang.on")
    return ConvergeResult(summary="went on")


async def goes_on(ctx, trigger):
    """Catch whatever ends a call, and make the next."""
    try:
        await ctx.call("hang.on")
    except BaseException:  # noqa: BLE001 - as users do
        await ctx.call("disk.read")
        await ctx.call("mail.send")


async def swallows_in_branches(ctx, trigger):
    """Catch in each branch whatever ends its call, and make the next."""
    await ctx.gather(goes_on(ctx, trigger), goes_on(ctx, trigger))
    return ConvergeResult(summary="went on")


ALL = pytest.mark.parametrize("function", [swallows, goes_on, swallows_in_branches])


@ALL
async def test_the_wall_budget_cannot_be_caught(function):
    disk, mail = Ledger(), Ledger(side_effect=True)
    tools = {"hang": hang, "disk": disk, "mail": mail}
    life = await play(function, tools=tools, budget=Budget(wall_s=0.1))
    assert life.end.error_class == "budget_exceeded"
    assert (life.of(EpisodeConverged), disk.calls, mail.calls) == ([], [], [])


@ALL
async def test_a_cancellation_cannot_be_caught(function):
    begun = asyncio.Event()

    async def hang(args, ctx):
        begun.set()
        await asyncio.Event().wait()

    ports, disk, mail = ports_in_memory(), Ledger(), Ledger(side_effect=True)
    app = app_of(function, tools={"hang": hang, "disk": disk, "mail": mail})
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await begun.wait()
        await cancel(ports, "worker", episode_id, by="ann")
        life = await lived(ports, episode_id)
    assert (life.end.status, disk.calls, mail.calls) == (EndStatus.CANCELED, [], [])


@ALL
async def test_a_lost_claim_cannot_be_caught(function):
    begun = asyncio.Event()

    async def hang(args, ctx):
        begun.set()
        await asyncio.Event().wait()

    ports, disk, mail = ports_in_memory(), Ledger(), Ledger(side_effect=True, idempotent=True)
    app = app_of(function, tools={"hang": hang, "disk": disk, "mail": mail})
    async with doomed(app, ports):
        episode_id = await open_episode(ports, app)
        await begun.wait()
    so_far = await life_of(ports, episode_id)
    assert (so_far.of(StepRecorded), so_far.of(EpisodeConverged)) == ([], [])
    assert (disk.calls, mail.calls) == ([], [])


SPINS_MAX = 10_000


def spinning(cleaned: list[str]):
    """Return a function that calls for ever, whatever it is told, but only so often."""

    async def spin(ctx, trigger):
        for _ in range(SPINS_MAX):
            try:
                await ctx.call("hang.on")
            except BaseException:  # noqa: BLE001, S112 - as users do
                continue
        cleaned.append("spun")

    return spin


def spinning_in_branches(cleaned: list[str]):
    """Return a function whose branches do that."""
    spin = spinning(cleaned)

    async def check(ctx, trigger):
        await ctx.gather(spin(ctx, trigger), spin(ctx, trigger))

    return check


@pytest.mark.parametrize("made", [spinning, spinning_in_branches])
async def test_a_function_that_calls_for_ever_is_left(made, monkeypatch):
    # Python tells of a coroutine that does not end when it is deleted.
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    spun: list[str] = []
    life = await play(made(spun), tools={"hang": hang}, budget=Budget(wall_s=0.1))
    assert (life.end.error_class, spun) == ("budget_exceeded", [])
    gc.collect()


async def test_an_interruption_that_nobody_asked_for_is_a_failure():
    async def check(ctx, trigger):
        raise Interrupted

    life = await play(check)
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "crash")
