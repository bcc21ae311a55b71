"""An agent of pydantic-ai in an episode: everything that it does outside is done once."""

from __future__ import annotations

import asyncio
from collections import Counter

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.episodes.fork import fork
from streams.json import unraw
from streams.model.events import EndStatus, EpisodeConverged, StepKind, StepRecorded, position_of
from streams.model.triggers import Budget
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import lived, open_episode, ports_in_memory, running

MANY = Budget(turns=100, tokens=0)


class Outside:
    """Counts what is asked of models and done by tools."""

    def __init__(self):
        self.asked = Counter()
        self.done = Counter()


def returns(messages):
    return [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]


def investigator(outside):
    """Return an agent that calls three tools at once, one of which runs an agent, then one more."""

    def expert_model(messages, info):
        outside.asked["expert"] += 1
        found = returns(messages)
        if found:
            return ModelResponse([TextPart(f"expert: {found[0].content}")])
        return ModelResponse([ToolCallPart("lookup", {"q": "why"}, "call-1")])

    expert = Agent(FunctionModel(expert_model), name="expert")

    @expert.tool_plain
    async def lookup(q: str) -> str:
        outside.done["lookup"] += 1
        return f"found {q}"

    def model(messages, info):
        outside.asked["investigator"] += 1
        found = returns(messages)
        match len(found):
            case 0:
                calls = [("metrics", {"q": "cpu"}), ("restart", {"s": "web"}), ("ask", {"q": "x"})]
            case 3:
                calls = [("metrics", {"q": "disk"})]
            case _:
                text = ", ".join(str(each.content) for each in found)
                return ModelResponse([TextPart(text)])
        return ModelResponse(
            [ToolCallPart(name, args, f"call-{n}") for n, (name, args) in enumerate(calls)]
        )

    @tool(side_effect=True, idempotent=True)
    async def restart(s: str) -> str:
        """Restart a service."""
        outside.done["restart"] += 1
        return f"{s} is up"

    async def ask(ctx, q: str) -> str:
        """Ask an expert."""
        return (await ctx.agent(expert, q)).output

    agent = Agent(FunctionModel(model), name="investigator", toolsets=[toolset(restart, ask)])

    @agent.tool_plain
    async def metrics(q: str) -> str:
        await asyncio.sleep(0)
        outside.done[f"metrics {q}"] += 1
        return f"{q} is high"

    async def investigate(ctx, trigger):
        result = await ctx.agent(agent, "what broke?")
        await ctx.observe(result.usage.requests)
        return ConvergeResult(classification={"said": result.output})

    return investigate, [restart]


EXPECTED = "cpu is high, web is up, expert: found why, disk is high"

ONCE = (
    {"investigator": 3, "expert": 2},
    {
        "metrics cpu": 1,
        "metrics disk": 1,
        "restart": 1,
        "lookup": 1,
    },
)


def classified(life):
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    return unraw(life.of(EpisodeConverged)[0].classification)["said"]


async def test_an_agent_runs_and_each_of_its_parts_is_a_step():
    outside = Outside()
    investigate, tools = investigator(outside)
    life = await play(investigate, tools=tools, budget=MANY)
    assert classified(life) == EXPECTED
    assert (outside.asked, outside.done) == ONCE
    steps = life.of(StepRecorded)
    kinds = Counter(each.kind for each in steps)
    assert kinds[StepKind.MODEL_REQUEST] == 5
    assert kinds[StepKind.AGENT] == 2
    assert {each.path for each in steps} >= {"1.m1.1", "1.t1-1.1", "1.t1-3.1.m1.1", "1", "2"}


async def test_after_a_crash_at_each_moment_nothing_is_asked_or_done_twice():
    outside = Outside()
    investigate, tools = investigator(outside)
    events = middle(await play(investigate, tools=tools, budget=MANY))
    for until in range(len(events)):
        before = Outside()
        for event in events[:until]:
            count(before, event)
        after = Outside()
        investigate, tools = investigator(after)
        app = app_of(investigate, tools=tools, budget=MANY)
        life = await resume(app, events[:until])
        assert classified(life) == EXPECTED, until
        assert (before.asked + after.asked, before.done + after.done) == ONCE, until


def count(outside, event):
    if not isinstance(event, StepRecorded):
        return
    match event.kind, event.tool_name:
        case StepKind.MODEL_REQUEST, name:
            outside.asked[name] += 1
        case StepKind.TOOL_CALL, "investigator.metrics":
            outside.done[f"metrics {unraw(event.args)['q']}"] += 1
        case StepKind.TOOL_CALL, "restart.call":
            outside.done["restart"] += 1
        case StepKind.TOOL_CALL, "expert.lookup":
            outside.done["lookup"] += 1


async def test_a_fork_goes_on_from_each_step_of_an_agent():
    outside = Outside()
    investigate, tools = investigator(outside)
    ports, app = ports_in_memory(), app_of(investigate, tools=tools, budget=MANY)
    async with running(app, ports):
        first = await open_episode(ports, app)
        life = await lived(ports, first)
        steps = life.of(StepRecorded)
        for at in range(len(steps) + 1):
            outside.asked.clear()
            forked = await lived(ports, await fork(ports, first, at=at, by="ann"))
            assert classified(forked) == EXPECTED, at
            kept = Counter(
                each.tool_name for each in steps[:at] if each.kind is StepKind.MODEL_REQUEST
            )
            assert kept + outside.asked == ONCE[0], at


def test_parts_of_an_agent_are_in_the_order_in_which_they_were_asked_for():
    first = ["1.m1.1", "1.t1-1.1", "1.t1-2.1", "1.t1-10.1"]
    paths = [*first, "1.m2.1", "1.d2-1.1", "1.t2-1.1", "1.m10.1", "2", "10"]
    assert sorted(paths, key=position_of) == paths
