"""How long a function runs: branches at the same time count once, before and after a wait."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.strategy import ConvergeResult
from streams.memory import memory_ports
from streams.model.events import EndStatus, EpisodeBlocked, EpisodeLeft, StepRecorded
from streams.model.triggers import Budget
from tests.engine.functions.stage import app_of
from tests.engine.stage import (
    CLOCK,
    decide,
    doomed,
    eventually,
    life,
    lived,
    open_episode,
    ports_in_memory,
    running,
)

CALL_S = 0.2

CALLS = 12

LIMIT_S = 5 * CALL_S
"""Room for the calls at once, which take `CALL_S`, and none for one after the other."""


async def read(args, ctx):
    await asyncio.sleep(CALL_S)


async def many_at_once(ctx, trigger):
    """Call often at once, ask people, and call once more."""
    await ctx.gather(*(ctx.call("disk.read", n=n) for n in range(CALLS)))
    if await ctx.approval({"restart": "web-1"}):
        await ctx.call("disk.read", n=CALLS)
    return ConvergeResult(summary="all is read")


async def approved(ports, episode_id) -> None:
    await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
    await decide(ports, episode_id)


async def test_calls_at_once_count_once_also_after_people_were_asked():
    ports = memory_ports(clock=CLOCK)
    app = app_of(
        many_at_once, tools={"disk": {"read": read}}, budget=Budget(turns=0, wall_s=LIMIT_S)
    )
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await approved(ports, episode_id)
        ended = await lived(ports, episode_id)

    assert ended.end.status is EndStatus.DONE, ended.end.error_detail
    assert 2 * CALL_S * 1000 <= ended.end.wall_used_ms < LIMIT_S * 1000


@pytest.mark.parametrize("dies", [True, False])
async def test_calls_at_once_count_once_also_on_the_next_node(dies):
    gate = asyncio.Event()

    async def wait(args, ctx):
        await gate.wait()

    async def check(ctx, trigger):
        await ctx.gather(*(ctx.call("disk.read", n=n) for n in range(CALLS)))
        await ctx.call("gate.wait")
        await ctx.observe("the gate is open")

    ports = ports_in_memory()
    tools = {"disk": {"read": read}, "gate": {"wait": wait}}
    app = app_of(check, tools=tools, budget=Budget(turns=0, wall_s=LIMIT_S))
    async with doomed(app, ports, "n1") if dies else running(app, ports, "n1") as node:
        episode_id = await open_episode(ports, app)

        async def are_read() -> bool:
            return len((await life(ports, episode_id)).of(StepRecorded)) == CALLS

        await eventually(are_read)
        if not dies:
            node.stop()
            gate.set()
            await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeLeft))
    gate.set()
    async with running(app, ports, "n2"):
        ended = await lived(ports, episode_id)

    assert ended.end.status is EndStatus.DONE, ended.end.error_detail
