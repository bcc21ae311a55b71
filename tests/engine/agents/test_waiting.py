"""Tools of agents that gather, wait and are cut off."""

from __future__ import annotations

import asyncio
from functools import partial

from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from streams.model.events import EpisodeBlocked, StepAnnounced, StepKind, StepRecorded
from tests.engine.agents.stage import (
    MANY,
    Script,
    agent_of,
    classified,
    last_told,
    told,
    waiting_tools,
)
from tests.engine.agents.test_failures import asking
from tests.engine.agents.test_money import SHORT, played
from tests.engine.agents.test_money import app_of as priced_app_of
from tests.engine.agents.test_people import is_given
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import decide, eventually, lived, open_episode, ports_in_memory, running


async def test_a_reservation_does_not_park_an_agent_that_is_cut_off_in_a_replay():
    limits = [None]
    agent = agent_of(Script("fine"), model_settings=SHORT)

    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(limits[0]):
                said = (await ctx.agent(agent, "go")).output
        except TimeoutError:
            said = "too late"
        return ConvergeResult(classification={"said": said})

    app = priced_app_of(check, usd="10")
    events = middle(await played(app))
    at = next(n for n, e in enumerate(events) if isinstance(e, StepAnnounced))
    limits[0] = 0
    life = await resume(app, events[: at + 1])
    assert not life.parked, life.parked
    assert classified(life) == {"said": "too late"}


async def test_hidden_arguments_of_a_toolset_made_by_a_function():
    @tool(redact=["token"])
    async def read(path: str, token: str) -> str:
        return path

    script = Script([("read", {"path": "/", "token": "s3cret"})], last_told)
    agent = agent_of(script)

    @agent.toolset
    def made(ctx):
        return toolset(read)

    life = await play(asking(agent), tools=[read], budget=MANY, log_strategy="full_debug")
    assert "failed" in classified(life)["said"] or classified(life)["said"] == "/"
    for step in life.of(StepRecorded):
        if step.kind is StepKind.MODEL_REQUEST and b"s3cret" in bytes(step.result):
            assert b"***" in bytes(step.result_shown)


async def test_tools_that_gather_in_branches_go_on_at_each_moment():
    async def both(ctx, n: int) -> str:
        async def one(x):
            await ctx.sleep(0.001)
            ctx.now()
            return await ctx.observe([x, ctx.random()])

        seen = await ctx.gather(one(n), one(n + 1))
        return f"{[each[0] for each in seen]}"

    calls = [("both", {"n": 1}), ("both", {"n": 5})]
    agent = agent_of(Script(calls, lambda m: ",".join(told(m))), toolsets=[toolset(both)])

    async def inner(ctx) -> str:
        return (await ctx.agent(agent, "in")).output

    outer = agent_of(
        Script([("inner", {})], lambda m: ",".join(told(m))),
        name="outer",
        toolsets=[toolset(inner)],
    )

    async def ask(ctx, trigger):
        first, second, _ = await ctx.gather(
            ctx.agent(outer, "a"), ctx.agent(agent, "b"), ctx.sleep(0.002)
        )
        return ConvergeResult(classification={"said": first.output + second.output})

    life = await play(ask, budget=MANY)
    said = classified(life)
    events = middle(life)
    for until in range(0, len(events), 3):
        again = await resume(app_of(ask, budget=MANY), events[:until])
        assert not again.parked, (until, again.parked)
        assert classified(again) == said, until


async def test_tools_that_wait_for_different_things_at_once():
    script, tools = waiting_tools()
    agent = agent_of(script, toolsets=[tools])
    ports, app = ports_in_memory(), app_of(asking(agent), budget=MANY)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
        await eventually(partial(is_given, ports, "letter:9", "because"))
        await decide(ports, episode_id, by="ann")
        life = await lived(ports, episode_id)
    assert classified(life) == {"said": "ann,slept,because"}


async def test_a_large_end_ends():
    agent = agent_of(Script(lambda m: "x" * 1_500_000))

    async def ask(ctx, trigger):
        return ConvergeResult(classification={"said": len((await ctx.agent(agent, "go")).output)})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": 1_500_000}
