"""What goes wrong with agents in other durable engines, and does not here."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.capabilities import BatchModelRequests, Instrumentation
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from engine.agents.toolset import toolset
from engine.app.strategy import ConvergeResult
from streams.memory import memory_ports
from streams.model.events import StepKind, StepRecorded
from streams.wire import codec
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told, told
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import CLOCK, leave, lived, running


def asking(agent):
    async def ask(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    return ask


async def look() -> str:
    return "high"


async def test_what_is_only_replayed_leaves_no_span():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    told_to = Instrumentation(InstrumentationSettings(tracer_provider=provider))

    async def rest(ctx) -> str:
        """Wait for people."""
        return (await ctx.approval({"x": 1})).reason

    script = Script([("look", {})], [("rest", {})], last_told)
    agent = agent_of(script, look, toolsets=[toolset(rest)], capabilities=[told_to])
    reached = lambda so_far: so_far.episode.blocked  # noqa: E731
    life = await play(asking(agent), reached=reached, budget=MANY)
    names = [each.name for each in exporter.get_finished_spans()]
    assert len([each for each in names if each.startswith("chat")]) == 2

    exporter.clear()
    ports, app = memory_ports(clock=CLOCK), app_of(asking(agent), budget=MANY)
    steps = [each for each in life.events if isinstance(each, StepRecorded)]
    episode_id = await leave(ports, app, *steps)
    async with running(app, ports):
        await lived(ports, episode_id, reached)
    assert exporter.get_finished_spans() == ()


async def test_a_batch_is_not_canceled_where_the_episode_is_left():
    asked = []

    def model(messages, info):
        asked.append(1)
        return ModelResponse([TextPart("cheap")])

    batches = BatchModelRequests(
        max_wait=timedelta(seconds=0.01), poll_interval=timedelta(seconds=60)
    )
    agent = Agent(FunctionModel(model), name="helper", capabilities=[batches])
    left = lambda so_far: so_far.episode.blocked  # noqa: E731
    life = await play(asking(agent), reached=left, budget=MANY)
    names = [each.tool_name for each in life.of(StepRecorded)]
    assert "helper.ModelCancelSuspendedResponse" not in names


async def test_the_history_of_many_turns_does_not_grow_with_the_square_of_them():
    turns = 100

    async def read() -> str:
        return "x" * 4096

    script = Script(*[[("read", {})]] * turns, "done")
    life = await play(asking(agent_of(script, read)), budget=MANY)
    assert classified(life) == {"said": "done"}
    size = sum(len(codec.encode_commit(record.commit)) for record in life.records)
    assert size < 1024 * 1024


async def test_a_tools_call_id_may_come_again_in_another_answer():
    calls = []

    async def note(n: int) -> str:
        calls.append(n)
        return f"noted {n}"

    twice = [[("note", {"n": 1}, "same")], [("note", {"n": 2}, "same")]]
    script = Script(*twice, lambda messages: "; ".join(told(messages)))
    function = asking(agent_of(script, note))
    life = await play(function, budget=MANY)
    assert classified(life) == {"said": "noted 1; noted 2"}
    events = middle(life)
    for until in range(len(events)):
        again = await resume(app_of(function, budget=MANY), events[:until])
        assert classified(again) == {"said": "noted 1; noted 2"}, until


async def test_parallel_calls_that_end_in_any_order_get_their_own_records():
    gates = {name: asyncio.Event() for name in "abc"}
    order = list("cab")

    async def wait(name: str) -> str:
        await gates[name].wait()
        return f"{name} came"

    async def opened():
        for name in order:
            gates[name].set()
            await asyncio.sleep(0.01)

    script = Script(
        [("wait", {"name": name}) for name in "abc"], lambda messages: "; ".join(told(messages))
    )
    function = asking(agent_of(script, wait))
    opening = asyncio.create_task(opened())
    life = await play(function, budget=MANY)
    await opening
    assert classified(life) == {"said": "a came; b came; c came"}
    events = middle(life)
    for until in range(len(events)):
        again = await resume(app_of(function, budget=MANY), events[:until])
        assert classified(again) == {"said": "a came; b came; c came"}, until


async def test_a_model_may_think_in_a_thread_while_an_agent_waits_beside_it():
    """Nothing that the library does between two parts makes the engine think that all rests."""

    async def ask_people(ctx) -> str:
        """Ask people."""
        return "yes" if await ctx.approval({"x": 1}, expires_s=1, on_expiry="approve") else "no"

    script = Script([("ask_people", {}), ("look", {})], lambda messages: "; ".join(told(messages)))
    life = await play(asking(agent_of(script, look, toolsets=[toolset(ask_people)])), budget=MANY)
    assert classified(life) == {"said": "yes; high"}
    requests = [e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    assert len(requests) == 2
