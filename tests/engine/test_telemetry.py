"""What an operator can measure. In a process of its own: a provider is installed for good."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from engine import telemetry

PROGRAM = """
import asyncio, json

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

from engine.app.actions import synthesize, tool_call
from engine.app.checks import Breaker
from engine.app.dedupe import by_value
from engine.app.findings import raise_finding
from engine.app.tools import Synthesis
from engine.app.triggers import event
from streams.tracing import traceparent
from tests.engine.stage import HAPPENED, Counter, Scripted, all_answered, app_of, lived, opening
from tests.engine.stage import ports_in_memory, running

async def think(prompt, transient, ctx):
    return Synthesis(content=1, output_tokens=7, model="m1")

async def main():
    ports = ports_in_memory()
    plan = [tool_call("tool", "a"), synthesize("why")]
    app = app_of(
        Scripted(*plan, findings=[raise_finding("k", class_="c")]),
        tools={"tool": Counter()}, synthesizer=think, durability="strict",
    )
    actor = app.actors["worker"]
    actor.expect("rare", Scripted(), on=event(HAPPENED), sample=1e-9)
    actor.expect(
        "ailing", Scripted(tool_call("nowhere", "go", {"bad": object()})),
        on=event(HAPPENED), breaker=Breaker(threshold=1),
    )
    actor.expect("nameless", Scripted(), on=event(HAPPENED), dedupe=lambda event: None)
    actor.expect("once", Scripted(), on=event("other.happened"), dedupe=by_value("n"))
    await (await ports.domain_events.open(actor.id, actor.event_names())).close()
    with trace.get_tracer("publisher").start_as_current_span("publish") as span:
        await ports.domain_events.publish(HAPPENED, {}, id="x1", trace=traceparent())
        published = span.get_span_context().trace_id
    ports.domain_events.publish_raw(HAPPENED, b"nonsense", {})
    async with running(app, ports):
        life = await lived(ports, opening(app).episode_id)
        finding = await ports.log.last(ports.stack.finding("k"))
    (events,) = (s for s in ports.log._streams.values() if s.name.endswith("-events"))
    name_of = lambda message: ports.domain_events._parse(message).name
    untraced = ("reactor.", "dead_letter.")
    told = [each for each in events.past(2) if not name_of(each).startswith(untraced)]
    async with running(app, ports):
        for id_ in ("x2", "x3"):
            await ports.domain_events.publish("other.happened", {"n": 1}, id=id_)
            await all_answered(ports.domain_events)
    return {
        "published": f"{published:032x}",
        "commits": [record.commit.trace for record in (*life.records, finding)],
        "told": [one.headers.get("traceparent", "") for one in told],
    }

seen = asyncio.run(main())
seen["spans"] = [
    [span.name, f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}",
     f"{span.parent.span_id:016x}" if span.parent else ""]
    for span in exporter.get_finished_spans()
]
seen["metrics"] = {
    metric.name: [dict(point.attributes) for point in metric.data.data_points]
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What one traced episode left with the SDK."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["gate", "episode", "step ToolCall", "step Synthesize"])
def test_every_stage_is_a_span_of_the_publishers_trace(seen, name):
    traces = [trace for span, trace, _, _ in seen["spans"] if span == name]
    assert seen["published"] in traces


def test_every_commit_belongs_to_the_publishers_trace(seen):
    assert len(seen["commits"]) >= 5
    assert {trace.split("-")[1] for trace in seen["commits"]} == {seen["published"]}


def test_public_events_carry_the_trace_on(seen):
    assert {trace.split("-")[1] for trace in seen["told"]} == {seen["published"]}


def test_steps_are_spans_of_their_episode_and_the_episode_of_its_gate(seen):
    mine = [span for span in seen["spans"] if span[1] == seen["published"]]
    ids = {name: id_ for name, _, id_, _ in mine}
    parents = {name: parent for name, _, _, parent in mine}
    assert parents["gate"] == ids["publish"]
    assert parents["episode"] == ids["gate"]
    assert parents["step ToolCall"] == parents["step Synthesize"] == ids["episode"]


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("vigil.gate.rulings", {"actor": "worker", "expectation": "thing", "reason": "fire"}),
        ("vigil.gate.rulings", {"actor": "worker", "expectation": "rare", "reason": "sampled_out"}),
        (
            "vigil.gate.rulings",
            {"actor": "worker", "expectation": "nameless", "reason": "dedupe_failed"},
        ),
        ("vigil.gate.rulings", {"actor": "worker", "expectation": "once", "reason": "duplicate"}),
        (
            "vigil.breaker.changes",
            {"actor": "worker", "expectation": "ailing", "change": "opened"},
        ),
        ("vigil.episodes", {"actor": "worker", "mode": "live", "status": "done"}),
        ("vigil.episodes.running", {"actor": "worker", "mode": "live"}),
        ("vigil.episode.duration", {"actor": "worker", "mode": "live"}),
        ("vigil.step.duration", {"actor": "worker", "mode": "live", "kind": "tool_call"}),
        (
            "vigil.step.tokens",
            {"actor": "worker", "mode": "live", "model": "m1", "kind": "output"},
        ),
        ("vigil.backlog", {"actor": "worker", "queue": "events"}),
        ("vigil.backlog", {"actor": "worker", "queue": "commands"}),
        ("vigil.leases", {"outcome": "acquired"}),
        ("vigil.dead_letters", {"reason": "unreadable"}),
        ("vigil.dead_letters", {"reason": "dedupe_failed"}),
    ],
)
def test_the_engine_measures_itself(seen, name, attributes):
    assert attributes in seen["metrics"][name]


def test_a_span_tells_the_kind_of_an_error_and_not_its_text(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("test"))
    with pytest.raises(ValueError, match="s3cret"), telemetry.span("step", Context()):
        raise ValueError("s3cret")

    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")
    assert not span.events
