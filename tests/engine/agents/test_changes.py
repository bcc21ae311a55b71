"""What becomes of an agent whose prompt, tools, settings or model change between two nodes."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

from engine.agents.digests import digest
from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult, Function, code_of
from streams.model.events import EpisodeConverged, StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told
from tests.engine.functions.stage import app_of, middle, play, resume


async def look(q: str) -> str:
    """Look at something."""
    return f"{q} is high"


def checking(agent, *, then=None, **options):
    async def check(ctx, trigger):
        result = await ctx.agent(agent, "what is it?", **options)
        if then is not None:
            await ctx.observe(then)
        return ConvergeResult(classification={"said": result.output})

    return check


def script():
    return Script([("look", {"q": "cpu"})], last_told)


async def up_to_the_tool(function):
    """Return the events of an episode whose node has died after the agent's first tool."""
    events = middle(await play(function, budget=MANY))
    tools = [n for n, each in enumerate(events) if getattr(each, "kind", "") == "tool_call"]
    return events[: tools[0] + 1]


CHANGED = {
    "other instructions": (
        "the instructions",
        lambda: agent_of(script(), look, instructions="be brief"),
    ),
    "a tool more": ("the tools", lambda: agent_of(script(), look, another)),
    "the tool that was called is gone": ("the tools", lambda: agent_of(script(), another)),
    "other settings": (
        "the settings",
        lambda: agent_of(script(), look, model_settings={"temperature": 0.5}),
    ),
}


async def another() -> str:
    """Do something else."""
    return ""


@pytest.mark.parametrize(("what", "changed"), CHANGED.values(), ids=CHANGED)
async def test_a_changed_agent_parks_its_episode_and_says_what_has_changed(what, changed):
    events = await up_to_the_tool(checking(agent_of(script(), look)))
    life = await resume(app_of(checking(changed()), budget=MANY), events)
    assert f"{what} of the agent have changed" in life.parked


@tool(risk="change", idempotent=True)
async def restart(service: str) -> str:
    """Restart a service."""
    return "ok"


@tool(risk="destroy", idempotent=True)
async def restart_by_force(service: str) -> str:
    """Restart a service."""
    return "ok"


async def definition_of(offered, **options):
    box = toolset(offered, requires_approval=[offered], **options)
    (made,) = (await box.get_tools(None)).values()
    return made.tool_def


async def test_how_people_are_asked_about_calls_of_a_tool_is_not_what_its_agent_is():
    was = await definition_of(restart)
    together = await definition_of(restart, ask="together")
    riskier = replace(await definition_of(restart_by_force), name=was.name)
    assert {digest(each) for each in (was, together, riskier)} == {digest(was)}


async def test_episodes_of_an_agent_whose_calls_need_approval_outlive_an_upgrade():
    """If this fails, every open episode of such an agent parks: do not write another digest."""
    made = await definition_of(restart, approvers=["ann"], expires_s=60.0)
    assert digest(made.metadata) == "4761cbc3b6ea"


async def test_an_agent_may_go_on_with_what_was_recorded():
    events = await up_to_the_tool(checking(agent_of(script(), look)))
    changed = agent_of(script(), look, instructions="be brief")
    app = app_of(checking(changed, on_change="go_on"), budget=MANY)
    life = await resume(app, events)
    assert classified(life) == {"said": "cpu is high"}
    versions = [e.agent for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    assert len(set(versions)) == 2


async def test_an_agent_that_has_ended_is_not_run_again_whatever_has_changed():
    events = middle(await play(checking(agent_of(script(), look), then=1), budget=MANY))
    ended = next(n for n, e in enumerate(events) if getattr(e, "kind", "") == StepKind.AGENT)
    unasked = Script()
    app = app_of(checking(agent_of(unasked, instructions="all new"), then=1), budget=MANY)
    life = await resume(app, events[: ended + 1])
    assert classified(life) == {"said": "cpu is high"}
    assert unasked.asked == []


async def test_an_agent_that_ends_without_what_it_has_done_parks_its_episode():
    events = await up_to_the_tool(checking(agent_of(script(), look)))
    replies = Script("nothing to see")
    app = app_of(checking(agent_of(replies, look), on_change="go_on"), budget=MANY)
    model, tool = events[-2], events[-1]
    life = await resume(app, [tool] if model.kind is StepKind.MODEL_REQUEST else events)
    assert "the replay ends, or waits, without it" in life.parked
    assert not life.of(EpisodeConverged)
    assert StepKind.AGENT not in {each.kind for each in life.of(StepRecorded)}


async def test_each_request_has_the_version_of_the_agent():
    life = await play(checking(agent_of(script(), look)), budget=MANY)
    agents = {e.agent for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST}
    (version,) = agents
    name, _, digest = version.partition(":")
    assert name == "helper"
    assert len(digest) == 12


async def test_a_tool_of_steps_that_takes_another_way_parks_its_episode():
    @tool
    async def read(path: str) -> str:
        return path

    @tool
    async def write(path: str) -> str:
        return path

    def function(called):
        async def do(ctx) -> str:
            """Do it."""
            await ctx.call(called, path="/")
            await ctx.observe(1)
            return "done"

        return checking(agent_of(Script([("do", {})], last_told), toolsets=[toolset(do)]))

    events = middle(await play(function(read), tools=[read, write], budget=MANY))
    called = next(n for n, e in enumerate(events) if getattr(e, "tool_name", "") == "read.call")
    app = app_of(function(write), tools=[read, write], budget=MANY)
    life = await resume(app, events[: called + 1])
    assert "call 1.t1-1.1 was tool_call read.call" in life.parked


ASKING = """
from pydantic_ai import Agent
agent = Agent("test", name="helper", instructions={!r})
async def check(ctx, trigger):
    await ctx.agent(agent, "go")
"""


def test_another_prompt_in_the_module_of_a_function_is_other_code(tmp_path, monkeypatch):
    """So an episode that is parked tries it."""
    monkeypatch.syspath_prepend(tmp_path)
    codes = []
    for name, prompt in (("first", "be brief"), ("second", "be long"), ("third", "be brief")):
        (tmp_path / f"asking_{name}.py").write_text(ASKING.format(prompt))
        module = importlib.import_module(f"asking_{name}")
        codes.append(code_of(Function(module.check)))
    assert codes[0] == codes[2] != codes[1]
