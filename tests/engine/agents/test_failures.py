"""What goes wrong in an agent: it is recorded, told, and neither lost nor done again."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import msgspec
import pytest
from msgspec.structs import replace
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import AbstractToolset

from engine.agents import run
from engine.agents.toolset import toolset
from engine.agents.unit import MODEL_RETRIES
from engine.app.actions import Retries
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.tools import ToolFailed
from engine.errors import CallFailed, InvalidAction
from streams.json import NOTHING, unraw
from streams.model.events import EndStatus, StepKind, StepRecorded
from streams.model.triggers import Budget, Mode
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import (
    Closed,
    ask_start,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
    write,
)
from vigil.testing import FailureAnswer, ModelServer


def asking(agent, **options):
    async def ask(ctx, trigger):
        try:
            said = (await ctx.agent(agent, "go", **options)).output
        except CallFailed as failed:
            said = f"failed: {failed.error_class}: {failed.detail}"
        return ConvergeResult(classification={"said": said})

    return ask


async def test_what_asks_a_model_by_its_name_is_imported_beside_the_event_loop(monkeypatch):
    importing = []

    def look(name):
        importing.append((name, threading.current_thread() is threading.main_thread()))
        return ""

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(run, "problem_of_model", look)
    monkeypatch.setattr(run, "_IMPORTED", set())
    agent = Agent("openai:gpt-5", name="helper", defer_model_check=True)

    async def twice(ctx, trigger):
        for _ in range(2):
            with pytest.raises(CallFailed, match="OPENAI_API_KEY"):
                await ctx.agent(agent, "go")

    life = await play(twice, budget=MANY)
    assert life.end.status is EndStatus.DONE
    assert importing == [("openai:gpt-5", False)]


async def test_an_exception_of_a_tool_is_recorded_and_not_called_again():
    calls = []

    async def burst() -> str:
        calls.append(1)
        raise ValueError("the pipe is broken")

    agent = agent_of(Script([("burst", {})]), burst)
    life = await play(asking(agent), budget=MANY)
    said = classified(life)["said"]
    assert said.startswith("failed: crash: ")
    assert "the pipe is broken" in said
    events = middle(life)
    failed = next(n for n, e in enumerate(events) if getattr(e, "error_class", "") == "crash")
    again = await resume(app_of(asking(agent), budget=MANY), events[: failed + 1])
    assert classified(again)["said"] == said
    assert len(calls) == 1


async def test_a_tool_may_have_the_model_try_again_and_that_is_recorded():
    calls = []

    async def pick(n: int) -> str:
        calls.append(n)
        if n < 2:
            raise ModelRetry("take a larger one")
        return f"took {n}"

    agent = agent_of(Script([("pick", {"n": 1})], [("pick", {"n": 2})], last_told), pick)
    life = await play(asking(agent), budget=MANY)
    assert classified(life) == {"said": "took 2"}
    assert calls == [1, 2]


async def test_a_result_that_is_no_json_fails_the_agent_and_the_model_is_not_asked_again():
    async def make() -> object:
        return object()

    script = Script([("make", {})])
    said = classified(await play(asking(agent_of(script, make)), budget=MANY))["said"]
    assert said.startswith("failed: unencodable: ")
    assert len(script.asked) == 1


async def test_a_failed_call_of_a_vigil_tool_is_told_to_the_model():
    @tool
    async def read(path: str) -> str:
        raise ToolFailed("busy", "try later")

    agent = agent_of(Script([("read", {"path": "/"})], last_told), toolsets=[toolset(read)])
    life = await play(asking(agent), tools=[read], budget=MANY)
    assert classified(life) == {"said": "busy: try later"}


async def test_arguments_that_do_not_fit_are_told_to_the_model():
    @tool
    async def read(path: str) -> str:
        return path

    script = Script([("read", {"path": 3})], [("read", {"path": "/"})], last_told)
    life = await play(asking(agent_of(script, toolsets=[toolset(read)])), tools=[read], budget=MANY)
    assert classified(life) == {"said": "/"}
    assert "Expected `str`, got `int`" in last_told(script.asked[1])


async def test_a_tool_that_the_app_lacks_fails_the_agent():
    @tool
    async def read() -> str:
        return ""

    agent = agent_of(Script([("read", {})]), toolsets=[toolset(read)])
    said = classified(await play(asking(agent), budget=MANY))["said"]
    assert said.startswith("failed: no_tool_for_capability: ")


async def test_a_request_that_the_provider_refuses_for_now_is_repeated():
    tries = []

    def busy(messages):
        tries.append(1)
        return ModelHTTPError(429, "m", "slow down") if len(tries) < 3 else "at last"

    quick = Retries(attempts_max=3, first_s=0.001, most_s=0.001)
    life = await play(asking(agent_of(Script(busy)), retries=quick), budget=MANY)
    assert classified(life) == {"said": "at last"}
    steps = [e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    assert [e.error_class for e in steps] == ["tool_rate_limited", "tool_rate_limited", ""]
    assert [e.path for e in steps] == ["1.m1.1", "1.m1.1.0.2", "1.m1.1.0.4"]
    assert life.end.turns_used == 2


async def test_the_providers_hint_says_how_long_the_pause_is():
    busy = ModelHTTPError(429, "m", "slow down", retry_after=77.0)
    reached = lambda so_far: so_far.of(StepRecorded)  # noqa: E731
    life = await play(asking(agent_of(Script(busy))), reached=reached, budget=MANY)
    assert life.of(StepRecorded)[0].retry_s == 77.0
    assert MODEL_RETRIES.most_s < 77


async def test_a_request_that_is_wrong_is_not_repeated():
    script = Script(ModelHTTPError(400, "m", "no such thing"))
    said = classified(await play(asking(agent_of(script)), budget=MANY))["said"]
    assert said.startswith("failed: http_400: ")
    assert len(script.asked) == 1


async def test_an_agent_without_a_name_is_refused():
    life = await play(asking(Agent(FunctionModel(Script("hi")))), budget=MANY)
    assert 'it needs a name: Agent(…, name="triage")' in life.end.error_detail


class Homemade(AbstractToolset):
    """Does whatever it wants, which the library would not journal."""

    id = "homemade"

    async def get_tools(self, ctx):
        return {}

    async def call_tool(self, name, tool_args, ctx, tool):
        raise AssertionError


async def test_a_toolset_that_would_not_be_recorded_is_refused():
    agent = agent_of(Script("hi"), toolsets=[Homemade()])
    said = classified(await play(asking(agent), budget=MANY))["said"]
    assert "Homemade: what its tools do would not be recorded" in said


async def test_its_own_budget_fails_an_agent():
    async def look() -> str:
        return ""

    agent = agent_of(Script([("look", {})], [("look", {})], "done"), look)
    function = asking(agent, budget=Budget(turns=2))
    said = classified(await play(function, budget=MANY))["said"]
    assert said.startswith("failed: agent_budget_exceeded: ")


async def test_the_budget_of_the_episode_cannot_be_caught():
    async def look() -> str:
        return ""

    agent = agent_of(Script(*[[("look", {})]] * 9, "done"), look)
    life = await play(asking(agent), budget=Budget(turns=5, tokens=0))
    assert life.end.status is EndStatus.FAILED
    assert life.end.error_class == "budget_exceeded"
    assert life.end.turns_used == 5


async def test_a_timeout_of_the_functions_own_cuts_an_agent_off():
    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    agent = agent_of(Script([("hang", {})]), hang)

    async def ask(ctx, trigger):
        try:
            async with asyncio.timeout(0.05):
                await ctx.agent(agent, "go")
        except TimeoutError:
            return ConvergeResult(classification={"said": "too late"})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": "too late"}
    cut = [e for e in life.of(StepRecorded) if e.kind is StepKind.AGENT]
    assert [e.error_class for e in cut] == ["call_timeout"]
    again = await resume(app_of(ask, budget=MANY), middle(life)[:-1])
    assert classified(again) == {"said": "too late"}


class Verdict(BaseModel):
    is_bad: bool
    why: str


class Other(msgspec.Struct):
    x: int


@dataclasses.dataclass
class Plain:
    y: int


async def test_a_structured_output_is_the_same_from_the_record():
    def answers(messages):
        return [("final_result", {"is_bad": True, "why": "disk"})]

    agent = agent_of(Script(answers), output_type=Verdict)
    seen = []

    async def ask(ctx, trigger):
        result = await ctx.agent(agent, "go")
        seen.append(result.output)
        await ctx.observe(1)
        return ConvergeResult(classification={"said": result.output.why})

    life = await play(ask, budget=MANY)
    await resume(app_of(ask, budget=MANY), middle(life)[:-2])
    assert seen == [Verdict(is_bad=True, why="disk")] * 2


@pytest.mark.parametrize("keep", [True, False])
async def test_a_conversation_is_kept_on_demand(keep):
    first, then = agent_of(Script("hello")), agent_of(Script("", lambda m: f"{len(m)} messages"))

    async def ask(ctx, trigger):
        result = await ctx.agent(first, "hi", keep_messages=keep)
        if not keep:
            with pytest.raises(InvalidAction, match="keep_messages=True"):
                assert result.messages
            return ConvergeResult(classification={"said": "none"})
        more = await ctx.agent(then, "and?", message_history=result.messages)
        return ConvergeResult(classification={"said": more.output})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": "3 messages" if keep else "none"}


async def test_agents_in_branches_run_at_the_same_time():
    gate = asyncio.Barrier(2)

    async def meet() -> str:
        await gate.wait()
        return "met"

    agents = [agent_of(Script([("meet", {})], last_told), meet, name=name) for name in ("a", "b")]

    async def ask(ctx, trigger):
        both = await ctx.gather(*(ctx.agent(each, "go") for each in agents), ctx.observe(7))
        return ConvergeResult(classification={"said": [both[0].output, both[1].output]})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": ["met", "met"]}


async def test_an_episode_is_not_left_while_an_agent_is_busy_beside_what_waits():
    calls, gate = [], asyncio.Event()

    async def work() -> str:
        calls.append(1)
        await gate.wait()
        return "worked"

    agent = agent_of(Script([("work", {})], last_told), work)

    async def ask(ctx, trigger):
        async def opens_the_gate():
            await ctx.observe(1)
            asyncio.get_running_loop().call_later(0.05, gate.set)
            return await ctx.wait("x", expires_s=0.2, on_expiry="continue")

        both = await ctx.gather(ctx.agent(agent, "go"), opens_the_gate())
        return ConvergeResult(classification={"said": both[0].output})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": "worked"}
    assert calls == [1]


async def test_in_a_dry_run_an_agent_calls_no_tools_of_its_own():
    calls = []

    async def pay() -> str:
        calls.append(1)
        return "paid"

    function = asking(agent_of(Script([("pay", {})], last_told), pay))
    ports, app = ports_in_memory(), app_of(function, budget=MANY)
    async with running(app, ports):
        opened = replace(opening(app), mode=Mode.DRY_RUN)
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    assert classified(life)["said"].startswith("failed: dry_run_side_effect: helper.pay: ")
    assert calls == []


async def test_a_model_is_not_asked_before_the_fence_is_durable():
    asked = []

    async def model(messages, info):
        asked.append(1)
        return ModelResponse([TextPart("hello")])

    agent = Agent(FunctionModel(model), name="helper")
    ports, app = ports_in_memory(), app_of(asking(agent), budget=MANY)
    closed = Closed(ports.log)
    async with running(app, dataclasses.replace(ports, log=closed)):
        await open_episode(ports, app)
        await closed.tried.wait()
        for _ in range(500):  # As long as the library could take to ask.
            await asyncio.sleep(0)
        assert asked == []
        closed.open.set()
        await lived(ports, opening(app).episode_id)
    assert asked == [1]


async def test_people_do_not_see_what_a_tool_hides_in_what_a_model_calls():
    @tool(redact=["token"])
    async def read(path: str, token: str) -> str:
        return path

    script = Script([("read", {"path": "/", "token": "s3cret"})], last_told)
    agent = agent_of(script, toolsets=[toolset(read)])
    life = await play(asking(agent), tools=[read], budget=MANY, log_strategy="full_debug")
    assert classified(life) == {"said": "/"}
    shown = [
        unraw(each.result_shown) for each in life.of(StepRecorded) if each.result_shown != NOTHING
    ]
    assert "s3cret" not in str(shown)
    assert "***" in str(shown)


@pytest.mark.parametrize("repeats", [True, False])
async def test_only_the_engine_repeats_a_request(repeats):
    async with ModelServer([FailureAnswer(503)] * 2 + ["fine"]) as server:
        provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="test")
        retries = Retries(attempts_max=3, first_s=0.01, most_s=0.01) if repeats else None
        async with OpenAIChatModel("test-model", provider=provider) as model:
            agent = Agent(model, name="helper")
            life = await play(asking(agent, retries=retries), budget=MANY)
        asked = server.requests
    said = classified(life)["said"]
    assert said == "fine" if repeats else said.startswith("failed: tool_unavailable: ")
    assert asked == (3 if repeats else 1)


async def test_a_test_may_override_the_model_of_an_agent():
    agent = Agent("test", name="helper")
    with agent.override(model=FunctionModel(Script("overridden"), model_name="mine")):
        life = await play(asking(agent), budget=MANY)
    assert classified(life) == {"said": "overridden"}
    assert classified(await play(asking(agent), budget=MANY)) == {"said": "success (no tool calls)"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"prompt": {"a": 1}}, "the prompt is a dict, not text"),
        (
            {"prompt": "go", "on_change": "continue"},
            "on_change: 'continue'; use 'park', 'go_on' or 'old'",
        ),
        ({"agent": "helper", "prompt": "go"}, "'helper' is none; give it Agent(…) of pydantic_ai"),
    ],
)
async def test_an_impossible_call_is_refused_at_its_line(given, told):
    agent = given.pop("agent", agent_of(Script("hi")))

    async def ask(ctx, trigger):
        await ctx.agent(agent, given.pop("prompt"), **given)

    life = await play(ask, budget=MANY)
    assert life.end.error_class == "invalid_action"
    assert told in life.end.error_detail
    assert "test_failures.py:" in life.end.error_detail


async def test_a_model_that_is_broken_is_not_asked_again():
    script = Script(ValueError("no such thing"))
    said = classified(await play(asking(agent_of(script)), budget=MANY))["said"]
    assert said.startswith("failed: crash: ")
    assert len(script.asked) == 1


async def test_a_tool_of_steps_that_returns_no_json_is_told_by_its_name():
    async def make(ctx) -> object:
        """Make something."""
        return object()

    agent = agent_of(Script([("make", {})]), toolsets=[toolset(make)])
    said = classified(await play(asking(agent), budget=MANY))["said"]
    assert said.startswith("failed: unencodable: result of make: ")


def test_one_approver_is_written_as_a_list():
    with pytest.raises(InvalidAction, match="is a text; write"):
        toolset(approvers="ann")
