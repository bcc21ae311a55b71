"""What agents tell telemetry. In processes of their own: a provider is installed for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.schemas import Schemas
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel
from pydantic_ai.models.test import TestModel

from engine import telemetry
from engine.agents import genai

PROGRAM = """
import asyncio, json, sys

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))

from pydantic_ai import Agent

from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.telemetry import tell_of_agents
from streams.tracing import traceparent
from tests.engine.agents.stage import MANY
from tests.engine.agents.test_model import model_at
from tests.engine.functions.stage import app_of
from streams.model.events import StepRecorded
from tests.engine.stage import HAPPENED, doomed, lived, opening
from tests.engine.stage import ports_in_memory, running
from vigil.testing import AskedTool, ModelServer, ModelUsage, TextAnswer, ToolCallsAnswer

STREAMS = "stream" in sys.argv
tell_of_agents(has_content="content" in sys.argv)
USED = ModelUsage(input_tokens=90, output_tokens=7)
DIES, IS_AWAY = asyncio.Event(), []

@tool(idempotent=True, side_effect=True)
async def look(at: str) -> str:
    if not IS_AWAY:
        IS_AWAY.append(1)
        DIES.set()
        await asyncio.Event().wait()  # The node dies here.
    return "high-secret"

ANSWERS = [
    ToolCallsAnswer((AskedTool("look", {"at": "cpu-secret"}),), usage=USED),
    TextAnswer("fine-secret", usage=USED),
]

async def main():
    ports = ports_in_memory()
    async with ModelServer(ANSWERS) as server, model_at(server, "messages") as model:
        agent = Agent(
            model, name="helper", toolsets=[toolset(look)], instructions="instructed-secret"
        )

        async def ask(ctx, trigger):
            said = await ctx.agent(agent, "asked-secret", stream=STREAMS)
            return ConvergeResult(classification={"said": said.output})

        app = app_of(ask, tools=[look], budget=MANY)
        actor = app.actors["worker"]
        await (await ports.domain_events.open(actor.id, actor.event_names())).close()
        with trace.get_tracer("publisher").start_as_current_span("publish") as span:
            await ports.domain_events.publish(HAPPENED, {}, id="x1", trace=traceparent())
            published = span.get_span_context().trace_id
        async with doomed(app, ports):
            await DIES.wait()
            # What is not on the journal yet would be asked again.
            await lived(ports, opening(app).episode_id, lambda so_far: so_far.of(StepRecorded))
        async with running(app, ports, "n2"):
            ended = await lived(ports, opening(app).episode_id)
        return f"{published:032x}", ended.end.status, server.requests

published, status, requests = asyncio.run(main())
print(json.dumps({
    "published": published, "status": status, "requests": requests,
    "spans": [
        [span.name, f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}",
         f"{span.parent.span_id:016x}" if span.parent else "", dict(span.attributes),
         span.instrumentation_scope.name]
        for span in exporter.get_finished_spans()
    ],
    "metrics": [
        [metric.name, dict(point.attributes), getattr(point, "sum", getattr(point, "value", None))]
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ],
}))
"""

SECRETS = ("asked", "instructed", "cpu", "high", "fine")


def told_by(*words: str) -> dict[str, Any]:
    """Return what an episode told whose node died in the middle of its agent."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["status"], said["requests"]) == ("done", 2)
    return said


@pytest.fixture(scope="module")
def told():
    return told_by()


@pytest.fixture(scope="module")
def streamed():
    return told_by("stream", "content")


@pytest.fixture(params=["told", pytest.param("streamed", marks=pytest.mark.nightly)])
def either(request):
    """What is the same whether answers are streamed and content is told, or not."""
    return request.getfixturevalue(request.param)


def spans_of(told, kind):
    """Return the spans of the library whose name begins with `kind`."""
    return [
        each for each in told["spans"] if each[5] == "pydantic-ai" and each[0].split()[0] == kind
    ]


def sums_of(told, name, label):
    return {labels.get(label): value for metric, labels, value in told["metrics"] if metric == name}


def test_a_request_is_told_once_though_its_node_dies_and_it_is_replayed(either):
    assert [each[0] for each in spans_of(either, "chat")] == ["chat claude-sonnet-5-5"] * 2
    tokens = sums_of(either, genai.METRICS[0], "gen_ai.token.type")
    assert tokens == {"input": 180, "output": 14}
    own = sums_of(either, "vigil.step.tokens", "kind")
    assert own == {"input": 180, "output": 14}


def test_the_costs_are_those_of_the_requests(either):
    costs = [each[4][genai.COST] for each in spans_of(either, "chat")]
    (total,) = (value for name, _, value in either["metrics"] if name == genai.COST)
    assert total == pytest.approx(sum(costs))
    assert all(each > 0 for each in costs)


def test_the_trace_goes_from_who_published_the_event_to_the_requests(either):
    by_id = {each[2]: each for each in either["spans"]}
    chats = spans_of(either, "chat")
    assert {each[1] for each in either["spans"]} == {either["published"]}

    def above(span):
        names = []
        while span is not None:
            names.append(span[0].split()[0])
            span = by_id.get(span[3])
        return names

    assert above(chats[0]) == ["chat", "invoke_agent", "episode", "gate", "publish"]
    # What the next node takes over is below what the dead one has written.
    assert above(chats[1])[:3] == ["chat", "invoke_agent", "episode"]


def test_no_name_is_told_that_is_not_in_the_one_list(either):
    known = {*genai.ATTRIBUTES, *genai.CONTENT}
    seen = {name for kind in genai.SPANS for each in spans_of(either, kind) for name in each[4]}
    seen |= {label for name, labels, _ in either["metrics"] if "gen_ai" in name for label in labels}
    beside = {each for each in seen if each.startswith("gen_ai.")} - known
    assert [each for each in beside if not each.startswith(genai.BESIDE)] == []
    metrics = {name for name, _, _ in either["metrics"] if name.startswith("gen_ai.")}
    assert metrics <= set(genai.METRICS)
    kinds = {each[0].split()[0] for each in either["spans"] if each[5] == "pydantic-ai"}
    assert kinds == set(genai.SPANS)


def test_texts_are_told_only_if_a_person_asks_for_them(told, streamed):
    def seen(what):
        said = json.dumps(what["spans"])
        return [each for each in SECRETS if f"{each}-secret" in said]

    assert seen(told) == []
    assert seen(streamed) == [*SECRETS]


def test_the_names_are_those_of_the_version_that_is_named():
    attributes = {each for each in vars(gen_ai_attributes).values() if isinstance(each, str)}
    metrics = {each for each in vars(gen_ai_metrics).values() if isinstance(each, str)}
    assert {*genai.ATTRIBUTES, *genai.CONTENT} <= attributes
    assert set(genai.METRICS) <= metrics
    assert Schemas(f"https://opentelemetry.io/schemas/{genai.CONVENTIONS}")


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(telemetry._Agents, "told", telemetry.AgentTelemetry(has_content=False))


def test_nothing_is_told_where_nobody_asks():
    assert telemetry.agents_told() is None
    assert genai.instrumentation(Agent(TestModel())) == []


@pytest.mark.usefixtures("asked")
def test_an_agent_that_says_itself_what_it_tells_is_left_as_it_is():
    settings = InstrumentationSettings()
    own = Agent(TestModel(), capabilities=[Instrumentation(settings)])
    silent = Agent(TestModel())
    silent.instrument = False
    assert len(genai.instrumentation(Agent(TestModel()))) == 1
    assert genai.instrumentation(own) == []
    assert genai.instrumentation(silent) == []
    assert genai.instrumentation(Agent(InstrumentedModel(TestModel(), settings))) == []
