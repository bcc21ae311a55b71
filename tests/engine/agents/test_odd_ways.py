"""Agents and their code in ways that are seldom, and must be right all the same."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.errors import CallFailed
from streams.model.events import EpisodeBlocked, StepAnnounced, StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told, told
from tests.engine.agents.test_failures import asking
from tests.engine.functions.stage import app_of, middle, play, resume


async def resumed_everywhere(function, tools=None, **options):
    life = await play(function, tools=tools, budget=MANY, **options)
    said = classified(life)
    events = middle(life)
    for until in range(len(events)):
        again = await resume(app_of(function, tools=tools, budget=MANY, **options), events[:until])
        assert not again.parked, (until, again.parked)
        assert classified(again) == said, until


async def test_an_output_that_is_validated_again_is_the_same_prompt_in_a_replay():
    agent = agent_of(Script("bad", "good"))

    @agent.output_validator
    async def check(output: str) -> str:
        if output == "bad":
            raise ModelRetry("do better")
        return output

    await resumed_everywhere(asking(agent))


async def test_arguments_that_are_no_json_are_told_to_the_model_though_a_tool_hides_some():
    @tool(redact=["token"])
    async def read(path: str, token: str) -> str:
        return path

    script = Script(
        [("read", '{"path": "/", "tok')], [("read", {"path": "/", "token": "s3cret"})], last_told
    )
    agent = agent_of(script, toolsets=[toolset(read)])
    life = await play(asking(agent), tools=[read], budget=MANY)
    assert classified(life) == {"said": "/"}


async def test_people_do_not_see_what_a_tool_hides_in_what_they_approve():
    @tool(redact=["token"])
    async def read(path: str, token: str) -> str:
        return path

    script = Script([("read", {"path": "/", "token": "s3cret"})], last_told)
    agent = agent_of(script, toolsets=[toolset(read, requires_approval=[read])])
    life = await play(
        asking(agent),
        tools=[read],
        budget=MANY,
        reached=lambda so_far: so_far.of(EpisodeBlocked),
    )
    assert b"s3cret" not in msgspec.json.encode(life.of(EpisodeBlocked))


async def test_hidden_arguments_of_a_toolset_made_at_run_time():
    @tool(redact=["token"])
    async def read(path: str, token: str) -> str:
        return path

    script = Script([("read", {"path": "/", "token": "s3cret"})], last_told)
    agent = agent_of(script)
    with agent.override(toolsets=[toolset(read)]):
        life = await play(asking(agent), tools=[read], budget=MANY, log_strategy="full_debug")
    assert classified(life) == {"said": "/"}
    shown = [e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    assert b"***" in bytes(shown[0].result_shown)


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("many", [1, 2])
async def test_what_a_tool_raises_fails_the_agent(kind, own, many):
    async def exits_plain() -> str:
        raise kind("out")

    async def exits(ctx) -> str:
        raise kind("out")

    if own:
        agent = agent_of(Script([("exits_plain", {})] * many, "no"), exits_plain)
    else:
        agent = agent_of(Script([("exits", {})] * many, "no"), toolsets=[toolset(exits)])
    life = await asyncio.wait_for(play(asking(agent), budget=MANY), 20)
    assert classified(life)["said"].startswith("failed: crash")


async def test_an_agent_that_is_cut_off_asks_its_model_no_more():
    async def hang(ctx) -> str:
        await ctx.sleep(3)
        return "slept"

    script = Script([("hang", {})], "told", "x")
    agent = agent_of(script, toolsets=[toolset(hang)])

    async def ask(ctx, trigger):
        try:
            async with asyncio.timeout(0.3):
                await ctx.agent(agent, "go")
        except TimeoutError:
            await ctx.observe(len(script.asked))
            return ConvergeResult(classification={"said": len(script.asked)})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": 1}


async def test_a_function_that_runs_its_agent_no_more_differs():
    async def look() -> str:
        return "high"

    agent = agent_of(Script([("look", {})], last_told), look)

    async def old(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    async def new(ctx, trigger):
        await ctx.observe(1)
        return ConvergeResult(classification={"said": "new"})

    events = middle(await play(old, budget=MANY))
    again = await resume(app_of(new, budget=MANY), events[:2])
    assert again.parked


@pytest.mark.parametrize("cut", ["before its request", "before its end"])
async def test_branches_beside_an_agent_see_its_end_no_earlier_in_a_replay(cut):
    """The end of an agent whose record is lost comes no earlier in a replay than it did."""
    go = asyncio.Event()

    async def model(messages, info):
        await go.wait()
        return ModelResponse([TextPart("fine")])

    agent = Agent(FunctionModel(model), name="helper")

    async def ask(ctx, trigger):
        shared = {}

        async def runs():
            shared["said"] = (await ctx.agent(agent, "go")).output

        async def looks():
            for number in range(900):
                if "said" in shared:
                    break
                await ctx.observe(number)
            go.set()

        await ctx.gather(runs(), looks())
        return ConvergeResult(classification=shared)

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": "fine"}
    events = middle(life)
    at = next(n for n, e in enumerate(events) if getattr(e, "path", "").endswith("m1.1"))
    end = next(n for n, e in enumerate(events) if getattr(e, "kind", "") is StepKind.AGENT)
    again = await resume(app_of(ask, budget=MANY), events[: at if "request" in cut else end])
    assert not again.parked, again.parked
    assert classified(again) == {"said": "fine"}


async def test_a_change_is_not_followed_that_another_tool_has_gone_past():
    second = asyncio.Event()

    @tool
    async def more() -> str:
        return ""

    async def old(ctx, n: int) -> str:
        if n == 1:
            await second.wait()
        await ctx.observe(n)
        second.set()
        return f"{n}"

    async def changed(ctx, n: int) -> str:
        if ctx.changed("more"):
            await ctx.call(more)
        await ctx.observe(n)
        return f"{n}"

    changed.__name__ = "old"

    def asks(step):
        calls = [("old", {"n": 1}), ("old", {"n": 2})]
        return asking(
            agent_of(Script(calls, lambda m: ",".join(told(m))), toolsets=[toolset(step)])
        )

    events = middle(await play(asks(old), tools=[more], budget=MANY))
    at = next(n for n, e in enumerate(events) if getattr(e, "path", "") == "1.t1-2.1")
    again = await resume(app_of(asks(changed), tools=[more], budget=MANY), events[: at + 1])
    assert not again.parked, again.parked
    assert classified(again) == {"said": "1,2"}


@pytest.mark.parametrize("length", [300_000, 900_000, 1_500_000])
async def test_a_long_prompt(length):
    agent = agent_of(Script("fine"))

    async def ask(ctx, trigger):
        said = (await ctx.agent(agent, "x" * length)).output
        return ConvergeResult(classification={"said": said})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": "fine"}


@pytest.mark.parametrize("what", ["tool", "output", "messages", "args", "error"])
async def test_large_results_of_everything(what):
    large = lambda this: "y" * 1_500_000 if what == this else ""  # noqa: E731

    async def look(x: str = "") -> str:
        if what == "error":
            raise ValueError("y" * 3_000_000)
        return large("tool")

    script = Script([("look", {"x": large("args")})], lambda m: large("output") or "fine")
    agent = agent_of(script, look)

    async def ask(ctx, trigger):
        keep = what == "messages"
        try:
            result = await ctx.agent(agent, "go" + large("messages")[:500_000], keep_messages=keep)
        except CallFailed as failed:
            return ConvergeResult(classification={"said": failed.error_class})
        await ctx.observe(1)
        return ConvergeResult(classification={"said": len(result.output)})

    life = await play(ask, budget=MANY)
    classified(life)


def in_an_agent(called):
    async def heal(ctx) -> str:
        return await ctx.call(called, service="web")

    return asking(agent_of(Script([("heal", {})], last_told), toolsets=[toolset(heal)]))


def in_a_function(called):
    async def heal(ctx, trigger):
        return ConvergeResult(classification={"said": await ctx.call(called, service="web")})

    return heal


@pytest.mark.parametrize("healing", [in_an_agent, in_a_function])
async def test_an_announced_call_that_is_asked_for_otherwise_differs(healing):
    done = []

    @tool(side_effect=True, idempotent=True)
    async def restart(service: str) -> str:
        done.append(service)
        return f"{service} is up"

    @tool(side_effect=True, idempotent=True)
    async def delete(service: str) -> str:
        done.append(service)
        return f"{service} is up"

    tools = [restart, delete]
    events = middle(await play(healing(restart), tools=tools, budget=MANY))
    at = next(n for n, e in enumerate(events) if isinstance(e, StepAnnounced))
    done.clear()
    again = await resume(app_of(healing(delete), tools=tools, budget=MANY), events[: at + 1])
    assert again.parked, (again.end, done)
    assert done == []
