"""Histories of episodes with agents, replayed."""

from __future__ import annotations

import asyncio

import pytest

from engine.agents.toolset import toolset
from engine.app.actions import Converge
from engine.app.strategy import ConvergeResult
from engine.errors import NondeterministicReplay
from engine.operations.replay import load, record, replay
from streams.model.events import EndStatus, EpisodeBlocked
from streams.model.triggers import Budget
from tests.engine.agents.stage import MANY, Script, agent_of, last_told, waiting_tools
from tests.engine.agents.test_failures import asking
from tests.engine.functions.stage import app_of, play
from tests.engine.stage import lived, open_episode, ports_in_memory, running


async def history_of(function, reached=None, **declared):
    ports = ports_in_memory()
    app = app_of(function, **declared)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, reached)
    return load(await record(ports, episode_id))


def waiting():
    script, tools = waiting_tools()
    agent = agent_of(script, toolsets=[tools])
    return script, asking(agent)


async def test_a_history_of_an_agent_that_waits_is_replayed():
    script, function = waiting()
    records = await history_of(function, lambda so_far: so_far.of(EpisodeBlocked), budget=MANY)
    asked = len(script.asked)
    await replay(records, app_of(function, budget=MANY))
    assert len(script.asked) == asked


async def test_a_history_of_an_agent_in_a_branch_is_replayed_to_its_end():
    async def look() -> str:
        return "high"

    script = Script([("look", {}), ("look", {})], last_told)
    agent = agent_of(script, look)

    async def ask(ctx, trigger):
        both = await ctx.gather(ctx.agent(agent, "go"), ctx.observe(1), ctx.agent(agent, "too"))
        return ConvergeResult(classification={"said": both[0].output})

    records = await history_of(ask, budget=MANY)
    asked = len(script.asked)
    again = await replay(records, app_of(ask, budget=MANY))
    assert again.asks == Converge() or again.asks
    assert len(script.asked) == asked


@pytest.mark.parametrize("strict", [False, True])
async def test_a_function_that_runs_its_waiting_agent_no_more_is_told(strict):
    _, function = waiting()
    records = await history_of(function, lambda so_far: so_far.of(EpisodeBlocked), budget=MANY)

    async def new(ctx, trigger):
        return ConvergeResult(classification={"said": "new"})

    with pytest.raises(NondeterministicReplay):
        await replay(records, app_of(new, budget=MANY))


async def test_other_branches_and_budget_end_in_the_middle_of_parallel_calls():
    calls = []

    async def look(n: int) -> str:
        calls.append(n)
        await asyncio.sleep(0)
        return "high"

    agent = agent_of(Script([("look", {"n": n}) for n in range(9)], last_told), look)
    life = await play(asking(agent), budget=Budget(turns=5, tokens=0))
    assert life.end.error_class == "budget_exceeded"
    assert life.end.turns_used <= 5
    assert len(calls) <= 4


async def test_the_wall_time_ends_an_agent():
    async def hang() -> str:
        await asyncio.Event().wait()

    async def hangs(ctx) -> str:
        await asyncio.Event().wait()

    agent = agent_of(
        Script([("hang", {}), ("hangs", {})], last_told), hang, toolsets=[toolset(hangs)]
    )
    life = await play(asking(agent), budget=Budget(turns=50, tokens=0, wall_s=0.5))
    assert life.end.status is EndStatus.FAILED
    assert life.end.error_class == "budget_exceeded", life.end.error_class


async def test_a_tool_of_its_own_that_does_not_end_while_the_budget_of_a_branch_does():
    """For comparison with a branch, which is not waited for for ever either."""

    async def stubborn() -> str:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    agent = agent_of(Script([("stubborn", {})], last_told), stubborn)

    async def ask(ctx, trigger):
        async def spends():
            for n in range(100):
                await ctx.observe(n)

        await ctx.gather(ctx.agent(agent, "go"), spends())

    life = await asyncio.wait_for(play(ask, budget=Budget(turns=20, tokens=0, wall_s=5)), 40)
    assert life.end.error_class == "budget_exceeded"
    assert "turns" in life.end.error_detail
