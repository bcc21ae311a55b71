"""What people are told of an answer before it is there; and that nothing else changes by it."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from engine.agents.durability.streaming import can_stream
from engine.agents.toolset import toolset
from engine.app.actions import Retries
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.episodes.redaction import ANSWER_BYTES_MAX
from streams.json import NOTHING, unraw
from streams.memory import memory_ports
from streams.model.deltas import DeltaEnd
from streams.model.events import StepKind, StepRecorded
from streams.model.triggers import Budget, LogStrategy
from tests.engine.agents.stage import MANY, Script, agent_of, classified
from tests.engine.agents.test_model import CLIENTS, model_at
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import CLOCK, doomed, eventually, lived, open_episode, running
from vigil.testing import (
    AskedTool,
    CutOffAnswer,
    ModelServer,
    ModelUsage,
    TextAnswer,
    ToolCallsAnswer,
)

QUICK = Retries(attempts_max=3, first_s=0.001, most_s=0.001)

LASTING = (
    "step_no", "kind", "tool_name", "path", "agent", "model", "error_class", "cost_tokens",
    "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd",
)  # fmt: skip

USED = ModelUsage(input_tokens=90, output_tokens=7, cached_tokens=5, reasoning_tokens=2)

ANSWERS = (
    ToolCallsAnswer((AskedTool("look", {"at": "cpu"}),), text="let me see how it is", usage=USED),
    TextAnswer("the cpu is fine", usage=USED),
)


class Heard:
    """Ports in memory, and each delta that was published on them."""

    def __init__(self):
        self.ports = memory_ports(clock=CLOCK)
        self.deltas = []
        self.ports.deltas.publish = lambda _, delta: self.deltas.append(delta)

    @property
    def told(self):
        """Return path, text, tools and end of each."""
        return [(each.path, each.text, each.tools, each.end) for each in self.deltas]

    def text_at(self, path):
        return "".join(each.text for each in self.deltas if each.path == path)


@pytest.fixture
def heard():
    return Heard()


def asking(agent, **options):
    async def ask(ctx, trigger):
        said = await ctx.agent(agent, "go", **{"stream": True, **options})
        return ConvergeResult(classification={"said": said.output})

    return ask


def saying(*texts):
    """Return an agent whose model says `texts`, one after the other, and what it was asked."""
    asked = []

    async def stream(messages, info):
        asked.append(messages)
        for each in texts:
            yield each

    return Agent(FunctionModel(stream_function=stream, model_name="mine"), name="helper"), asked


async def asked_of(client, answers, heard, **options):
    """Return the life of an episode whose agent asks a server, and what the server was asked."""
    async with ModelServer(answers) as server:
        async with model_at(server, client) as model:
            agent = Agent(model, name="helper")

            @agent.tool_plain
            async def look(at: str) -> str:
                return "high"

            function = asking(agent, retries=QUICK, **options)
            life = await play(function, ports=heard.ports, budget=MANY)
        return life, server.calls


def recorded(life):
    """Return all steps, without what is of the moment: times, and what providers call an answer."""
    return [
        {name: getattr(each, name) for name in LASTING} | {"result": _lasting(each)}
        for each in life.of(StepRecorded)
    ]


def _lasting(step):
    result = unraw(step.result)
    if step.kind is not StepKind.MODEL_REQUEST:
        return result
    parts = [
        {name: each[name] for name in each if name not in {"id", "tool_call_id"}}
        for each in result["parts"]
    ]
    kept = ("finish_reason", "kind", "model_name", "provider_name", "state", "usage")
    return [parts, {name: result.get(name) for name in kept}]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_streamed_answer_is_told_and_recorded_as_one_in_one_piece_is(client, heard):
    streamed, calls = await asked_of(client, ANSWERS, heard)
    whole, _ = await asked_of(client, ANSWERS, Heard(), stream=False)

    assert recorded(streamed) == recorded(whole)
    assert all(each.request.is_streamed for each in calls)
    assert heard.text_at("1.m1.1") == "let me see how it is"
    assert heard.text_at("1.m2.1") == "the cpu is fine"
    assert [each.tools for each in heard.deltas if each.tools] == [("look",)]
    assert [each.path for each in heard.deltas if each.end is DeltaEnd.DONE] == ["1.m1.1", "1.m2.1"]
    assert {each.attempt for each in heard.deltas} == {1}


async def test_nothing_is_told_where_nobody_asked_for_it(heard):
    _, calls = await asked_of("chat", ANSWERS, heard, stream=False)
    assert heard.deltas == []
    assert not any(each.request.is_streamed for each in calls)


async def test_a_streamed_request_has_a_key_of_its_own(heard):
    """A provider refuses a key whose body is another one, such as after a deploy."""
    _, streamed = await asked_of("chat", ANSWERS, heard)
    _, whole = await asked_of("chat", ANSWERS, Heard(), stream=False)
    keys = [[each.request.idempotency_key for each in calls] for calls in (streamed, whole)]
    assert keys[0] == [f"{each}:stream" for each in keys[1]]


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_answer_that_breaks_off_is_repeated_as_one_in_one_piece_is(client, heard):
    answers = [CutOffAnswer("the cpu is on fire, says"), "the cpu is fine"]
    streamed, _ = await asked_of(client, answers, heard)
    whole, _ = await asked_of(client, answers, Heard(), stream=False)

    assert classified(streamed) == {"said": "the cpu is fine"}
    requests = [
        [(e.path, e.error_class) for e in life.of(StepRecorded) if e.kind == "model_request"]
        for life in (streamed, whole)
    ]
    assert requests[0] == requests[1] == [("1.m1.1", "tool_unavailable"), ("1.m1.1.0.2", "")]
    ends = [(each.path, each.end) for each in heard.deltas if each.end]
    assert ends == [("1.m1.1", DeltaEnd.FAILED), ("1.m1.1.0.2", DeltaEnd.DONE)]
    assert "the cpu is on fire, says".startswith(heard.text_at("1.m1.1"))
    assert heard.text_at("1.m1.1.0.2") == "the cpu is fine"


async def test_who_listens_hears_an_answer_before_it_is_there():
    goes_on = asyncio.Event()

    async def stream(messages, info):
        yield "the disk "
        await goes_on.wait()
        yield "is full"

    agent = Agent(FunctionModel(stream_function=stream), name="helper")
    ports, app = memory_ports(clock=CLOCK), app_of(asking(agent), budget=MANY)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        async with ports.deltas.listen(episode_id) as listener:
            (first,) = await listener.receive(most=10, wait_s=30)
            goes_on.set()
            life = await lived(ports, episode_id)
            rest = await listener.receive(most=10, wait_s=30)
    assert (first.text, first.end) == ("the disk ", None)
    assert "".join(each.text for each in rest) == "is full"
    assert classified(life) == {"said": "the disk is full"}


async def test_a_replay_tells_nothing_again(heard):
    agent, asked = saying("it is ", "fine")

    async def ask(ctx, trigger):
        said = await ctx.agent(agent, "go", stream=True)
        await ctx.observe(1)
        return ConvergeResult(classification={"said": said.output})

    life = await play(ask, ports=heard.ports, budget=MANY)
    events = middle(life)
    request = next(n for n, e in enumerate(events) if getattr(e, "kind", "") == "model_request")
    assert len(heard.deltas) == 1

    for until in range(request + 1, len(events)):
        again = await resume(app_of(ask, budget=MANY), events[:until])
        assert classified(again) == {"said": "it is fine"}
    assert len(asked) == 1


async def test_what_a_dead_node_has_told_is_told_anew_in_the_next_attempt(heard):
    tries = []

    async def stream(messages, info):
        tries.append(1)
        yield "the disk "
        if len(tries) == 1:
            await asyncio.Event().wait()
        yield "is full"

    agent = Agent(FunctionModel(stream_function=stream), name="helper")
    ports = memory_ports(clock=CLOCK, lease_ttl_s=1)
    ports.deltas.publish = heard.ports.deltas.publish
    app = app_of(asking(agent), budget=MANY)
    async with doomed(app, ports):
        episode_id = await open_episode(ports, app)
        await eventually(lambda: heard.deltas)
    async with running(app, ports, "n2"):
        life = await lived(ports, episode_id)
    assert classified(life) == {"said": "the disk is full"}
    newest = [each for each in heard.deltas if each.attempt == 2]
    assert {each.path for each in heard.deltas} == {"1.m1.1"}
    assert "".join(each.text for each in newest) == "the disk is full"
    assert [each.place for each in newest] == [*range(len(newest))]
    assert newest[-1].end is DeltaEnd.DONE


@pytest.mark.parametrize("strategy", [LogStrategy.NONE, LogStrategy.SUMMARY_ONLY])
async def test_of_an_episode_that_shows_no_answers_nothing_is_told(strategy, heard):
    agent, _ = saying("a secret")
    life = await play(asking(agent), ports=heard.ports, budget=MANY, log_strategy=strategy)
    assert classified(life) == {"said": "a secret"}
    assert heard.deltas == []


async def test_a_long_answer_is_told_as_far_as_it_is_shown(heard):
    agent, _ = saying(*["x" * 100] * 100)
    life = await play(asking(agent), ports=heard.ports, budget=MANY, log_strategy="timeline")
    most = ANSWER_BYTES_MAX[LogStrategy.TIMELINE]
    assert heard.text_at("1.m1.1") == f"{'x' * most}…"
    assert len(classified(life)["said"]) == 10_000


async def test_arguments_of_calls_are_not_told(heard):
    @tool(redact=["token"])
    async def read(token: str) -> str:
        return "ok"

    async def stream(messages, info):
        if any(isinstance(each, ModelResponse) for each in messages):
            yield "done"
            return
        yield {0: DeltaToolCall("read", '{"token": ', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args='"s3cret"}')}

    model = FunctionModel(stream_function=stream)
    agent = Agent(model, name="helper", toolsets=[toolset(read)])
    life = await play(asking(agent), ports=heard.ports, tools=[read], budget=MANY)
    assert classified(life) == {"said": "done"}
    assert heard.told[0][2:] == (("read",), DeltaEnd.DONE)
    assert "s3cret" not in str(heard.deltas)


async def test_a_model_that_cannot_stream_answers_in_one_piece(heard):
    life = await play(asking(agent_of(Script("fine"))), ports=heard.ports, budget=MANY)
    assert classified(life) == {"said": "fine"}
    assert heard.deltas == []


def test_whether_a_model_can_stream_is_known_before_it_is_asked():
    whole = FunctionModel(Script("fine"))
    assert can_stream(TestModel())
    assert can_stream(WrapperModel(TestModel()))
    assert not can_stream(whole)
    assert not can_stream(WrapperModel(whole))
    assert not can_stream(FallbackModel(TestModel(), whole))


async def test_an_agent_within_a_tool_tells_its_own(heard):
    expert, _ = saying("quite sure")

    async def ask_expert(ctx) -> str:
        """Ask an expert."""
        return (await ctx.agent(expert, "sure?", stream=True)).output

    async def stream(messages, info):
        if any(isinstance(each, ModelResponse) for each in messages):
            yield "done"
        else:
            yield {0: DeltaToolCall("ask_expert", "{}", tool_call_id="c1")}

    model = FunctionModel(stream_function=stream)
    agent = Agent(model, name="helper", toolsets=[toolset(ask_expert)])
    await play(asking(agent), ports=heard.ports, budget=Budget(turns=20, tokens=0))
    assert heard.text_at("1.t1-1.1.m1.1") == "quite sure"
    assert heard.text_at("1.m2.1") == "done"


async def test_the_steps_of_a_streamed_answer_have_their_costs(heard):
    life, _ = await asked_of("messages", ANSWERS, heard)
    requests = [e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    assert all(each.cost_usd and each.result != NOTHING for each in requests)
    assert [(e.input_tokens, e.output_tokens) for e in requests] == [(90, 7)] * 2
