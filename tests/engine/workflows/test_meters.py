"""What an operator can measure of workflows. In a process of its own: a provider stays for good."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json
from itertools import count

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

from engine.workflows.store import InstanceStore as InstanceBook
from engine.workflows.begin import begin_instance
from engine.app.workflow import retrying
from engine.app.workflow import Workflow
from streams.errors import VersionConflict
from streams.model.events import WorkflowCancelAsked, WorkflowFinished, WorkflowStarted
from streams.model.triggers import ManualTrigger
from streams.model.workflows import WorkflowSpec, WorkflowStatus
from tests.engine.stage import CLOCK, eventually, ports_in_memory, running, told
from tests.engine.workflow_stage import Script, app_of, begin, ended

def review():
    made = Workflow("review", subject_key="client", overlap="skip")
    made.step("a", "act", "a", on_failure=retrying(attempts=2, backoff_s=0.01))
    made.step("b", "act", "b", when=lambda trigger, prior: False)
    return made

async def live(ports):
    script = Script()
    script.failures["a"] = 1
    let_go = script.hold("a")
    async with running(app_of(review(), script=script), ports):
        id_ = await begin(ports, "review", {"client": 7})
        await script.wait_called("a")
        await begin(ports, "review", {"client": 7}, key="k2")
        await eventually(lambda: "workflow.skipped" in dict(told(ports)))
        let_go.set()
        await ended(ports, id_)
        tried = await begin(ports, "review", {"client": 8}, key="k3", dry_run=True)
        await ended(ports, tried)

async def race(ports):
    started = WorkflowStarted(
        instance_id="i1", spec=WorkflowSpec(name="raced", steps=()), dedupe_key="k",
        trigger=ManualTrigger(requested_by="ada"),
    )
    for _ in range(2):
        await begin_instance(ports, started, at=CLOCK.now())
    books = [InstanceBook(ports, iter([pen])) for pen in ("p1", "p2")]
    pages = [await book.read("i1") for book in books]
    end = [WorkflowCancelAsked(by="ada"), WorkflowFinished(status=WorkflowStatus.CANCELED)]
    for book, page in zip(books, pages):
        try:
            await book.write(page, end, at=CLOCK.now())
        except VersionConflict:
            print("refused")

async def main():
    await live(ports_in_memory())
    await race(ports_in_memory())

asyncio.run(main())
print(json.dumps({
    metric.name: [[*point.attributes.values(), point.value] for point in metric.data.data_points]
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
    if metric.name.startswith(("vigil.instances", "vigil.workflow", "vigil.episodes"))
}))
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What the program has said: of a rival that was refused, and the metrics."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def seen(said) -> dict[str, list[list]]:
    """Each metric: the values of its labels in the order in which they are said, and how many."""
    return {name: sorted(points) for name, points in json.loads(said[-1]).items()}


def test_what_is_begun_twice_and_what_is_written_by_a_rival_is_counted_once(said, seen):
    assert "refused" in said
    assert ["raced", "live", 1] in seen["vigil.instances.started"]
    assert ["raced", "live", "canceled", 1] in seen["vigil.instances.ended"]


def test_an_instance_is_counted_when_it_begins_and_when_it_ends(seen):
    assert ["review", "live", 1] in seen["vigil.instances.started"]
    assert ["review", "live", "done", 1] in seen["vigil.instances.ended"]


def test_an_instance_that_does_not_begin_for_another_one_is_counted(seen):
    assert seen["vigil.instances.skipped"] == [["review", "live", 1]]


def test_items_of_steps_are_counted_by_what_came_of_them(seen):
    meant = [each for each in seen["vigil.workflow.steps"] if each[1] == "live"]
    assert meant == [
        ["review", "live", "done", 1],
        ["review", "live", "failed", 1],
        ["review", "live", "retried", 1],
        ["review", "live", "skipped", 1],
    ]


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("vigil.instances.started", ["review", "dry_run", 1]),
        ("vigil.instances.ended", ["review", "dry_run", "done", 1]),
        ("vigil.workflow.steps", ["review", "dry_run", "done", 1]),
        ("vigil.episodes", ["act", "dry_run", "done", 1]),
    ],
)
def test_a_dry_run_is_told_from_what_is_meant_for_workflows_as_for_episodes(seen, name, point):
    assert point in seen[name]
