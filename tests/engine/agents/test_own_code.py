"""What the code around an agent raises: validators, instructions, functions that make outputs."""

from __future__ import annotations

import asyncio

import pytest

from engine.agents.toolset import toolset
from engine.app.strategy import ConvergeResult
from tests.engine.agents.stage import MANY, Script, agent_of, classified, told
from tests.engine.agents.test_failures import asking
from tests.engine.functions.stage import app_of, middle, play, resume


async def everywhere(function, tools=None, step=1, **options):
    life = await play(function, tools=tools, budget=MANY, **options)
    said = classified(life)
    events = middle(life)
    for until in range(0, len(events), step):
        again = await resume(app_of(function, tools=tools, budget=MANY, **options), events[:until])
        assert not again.parked, (until, again.parked)
        assert classified(again) == said, until


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, ValueError]
)
@pytest.mark.parametrize("where", ["validator", "instructions", "output"])
async def test_what_an_agents_own_code_raises_fails_the_agent(kind, where):
    def output(x: str) -> str:
        raise kind("out")

    agent = agent_of(
        Script([("final_result", {"x": "a"})] if where == "output" else "fine"),
        **({"output_type": output} if where == "output" else {}),
    )
    if where == "validator":

        @agent.output_validator
        async def check(said: str) -> str:
            raise kind("out")

    if where == "instructions":

        @agent.instructions
        async def instruct(ctx) -> str:
            raise kind("out")

    life = await asyncio.wait_for(play(asking(agent), budget=MANY), 15)
    assert classified(life)["said"].startswith("failed: crash")


async def test_checkpoints_before_and_after_an_agent():
    def look() -> str:
        return "high"

    agent = agent_of(Script([("look", {}), ("look", {})], lambda m: told(m)[0]), look)

    async def ask(ctx, trigger):
        number = ctx.resumed or 0
        while number < 3:
            result = await ctx.agent(agent, f"go {number}")
            assert result.output == "high"
            number += 1
            await ctx.checkpoint(number)
        said = (await ctx.agent(agent, "last")).output
        return ConvergeResult(classification={"said": said})

    await everywhere(ask, step=2)


async def test_a_timeout_in_a_tool_of_steps_is_the_same_in_a_replay():
    inner = agent_of(Script([("hang", {})]), name="inner")

    @inner.tool_plain
    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    async def tries(ctx) -> str:
        try:
            async with asyncio.timeout(0.1):
                await ctx.agent(inner, "go")
        except TimeoutError:
            return f"late {await ctx.observe(1)}"

    agent = agent_of(
        Script([("tries", {}), ("tries", {})], lambda m: ",".join(told(m))),
        toolsets=[toolset(tries)],
    )
    await everywhere(asking(agent))


async def test_a_nested_agent_that_is_cut_off_from_outside_goes_on_no_more():

    async def hang(ctx) -> str:
        await ctx.sleep(4)
        return "slept"

    inner_script = Script([("hang", {})], "x", "y")
    inner = agent_of(inner_script, name="inner", toolsets=[toolset(hang)])

    async def tries(ctx) -> str:
        return (await ctx.agent(inner, "go")).output

    outer_script = Script([("tries", {}), ("tries", {})], "told", "z")
    outer = agent_of(outer_script, name="outer", toolsets=[toolset(tries)])

    async def ask(ctx, trigger):
        try:
            async with asyncio.timeout(0.4):
                await ctx.agent(outer, "go")
        except TimeoutError:
            pass
        await ctx.sleep(0.2)
        return ConvergeResult(
            classification={"said": [len(inner_script.asked), len(outer_script.asked)]}
        )

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": [2, 1]}
    ends = [n for n, e in enumerate(life.events) if getattr(e, "path", "") == "1"]
    later = [e for e in life.events[ends[0] + 1 :] if getattr(e, "path", "").startswith("1.")]
    assert later == []
