"""Instances on nodes that have other functions than they began with: they can be stopped there."""

from __future__ import annotations

from itertools import count

import pytest
from structlog.testing import capture_logs

from engine.app.workflow import Workflow
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.runtime.catalog import Catalog
from engine.workflows import worker
from engine.workflows.effector import Effector
from engine.workflows.requests import cancel_workflow
from engine.workflows.store import InstanceStore
from engine.workflows.worker import InstanceHandler, WorkflowWorker
from streams.model.commands import CancelWorkflow, StepDone
from streams.model.events import EndStatus, EpisodeFinished, StepBegun
from streams.model.workflows import StepStatus, WorkflowStatus
from tests.engine.stage import CLOCK, doomed, eventually, running, write
from tests.engine.workflow_stage import Script, app_of, begin, ended, history, instance

WHEN = {"when": lambda trigger, prior: True}

DEPLOYS = {"a function was added": ({}, WHEN), "a function was taken away": (WHEN, {})}


@pytest.fixture
def script() -> Script:
    return Script()


def flow(functions, **options) -> Workflow:
    made = Workflow("w", **options)
    made.step("a", "act", "a", compensate=("act", "undo_a"))
    made.step("b", "act", "b", depends_on=["a"], **functions)
    return made


async def left_by_old(ports, script, functions, *, at="b", **options) -> str:
    """Begin an instance on a node that then dies while a step runs, and return its id."""
    hold = script.hold(at)
    async with doomed(app_of(flow(functions, **options), script=script), ports, "old"):
        id_ = await begin(ports, "w")
        await script.wait_called(at)
    hold.set()
    return id_


def new_node(ports, script, functions, **options):
    return running(app_of(flow(functions, **options), script=script), ports, "new")


@pytest.mark.parametrize("deploy", DEPLOYS)
async def test_an_instance_can_be_canceled_and_is_undone_by_a_node_that_could_not_go_on_with_it(
    ports, script, deploy
):
    before, since = DEPLOYS[deploy]
    id_ = await left_by_old(ports, script, before)
    async with new_node(ports, script, since):
        await cancel_workflow(ports, id_, by="ada")
        assert (await ended(ports, id_)).status is WorkflowStatus.CANCELED
    assert script.called("undo_a") == 1


async def test_what_waited_for_a_node_that_could_go_on_is_answered_for_after_the_cancel(
    ports, script, monkeypatch
):
    """The end of its step would have the next one prepared, which takes its functions."""
    monkeypatch.setattr(worker, "BUSY_MAX_S", 0.1)
    id_ = await left_by_old(ports, script, WHEN)
    async with new_node(ports, script, {}):
        with capture_logs() as said:
            await eventually(lambda: _refusals(said))
        await cancel_workflow(ports, id_, by="ada")
        assert (await ended(ports, id_)).status is WorkflowStatus.CANCELED
        await eventually(lambda: not ports.commands._durables["workflow-w", 0].backlog)


async def test_of_commands_that_come_together_the_cancel_goes_first(ports, script):
    """After the end of `a` it would be `b`'s turn, which takes its functions."""
    id_ = await left_by_old(ports, script, WHEN, at="a")
    (begun,) = [each for each in await history(ports, id_) if isinstance(each, StepBegun)]
    await write(ports, begun.episode_id, EpisodeFinished(status=EndStatus.DONE))
    of_a = {"step": "a", "item": 0, "attempt": 1, "episode_id": begun.episode_id}
    end = StepDone(workflow="w", instance_id=id_, **of_a)
    cancel = CancelWorkflow(workflow="w", instance_id=id_, by="ada")
    handler = desk_of(ports, app_of(flow({}), script=script))
    assert {*await handler.put(id_, [end, cancel])} == {0}
    assert await handler.put(id_, [end]) == {}
    so_far = await instance(ports, id_)
    assert (so_far.goes_on, so_far.steps["a"].items[0].status) == (False, StepStatus.DONE)


def desk_of(ports, app) -> InstanceHandler:
    """Return who decides for the instances of `w` on a node of `app`."""
    catalog = Catalog(in_code(app))
    store = InstanceStore(ports, (f"pen{number}" for number in count()))
    effector = Effector(catalog, ports, CLOCK, "n1")
    return InstanceHandler("w", catalog, RevisionResolver(ports, app), CLOCK, store, effector)


async def test_the_time_of_an_instance_is_over_on_a_node_that_could_not_go_on_with_it(
    ports, script
):
    id_ = await left_by_old(ports, script, WHEN, timeout_s=1.0)
    async with new_node(ports, script, {}, timeout_s=1.0):
        over = await ended(ports, id_)
    assert over.aborted is not None
    assert (over.status, over.aborted.error_class) == (WorkflowStatus.FAILED, "workflow_timeout")


async def test_a_node_says_once_why_it_cannot_go_on_with_an_instance(ports, script, monkeypatch):
    monkeypatch.setattr(worker, "BUSY_MAX_S", 0.1)
    id_ = await left_by_old(ports, script, WHEN)
    refused = Counting(WorkflowWorker._refuse)
    monkeypatch.setattr(WorkflowWorker, "_refuse", refused)
    with capture_logs() as said:
        async with new_node(ports, script, {}):
            await eventually(lambda: refused.calls > 3)
    (refusal,) = _refusals(said)
    assert refusal["instance_id"] == id_
    assert "was begun with when" in refusal["why"]


class Counting:
    def __init__(self, call):
        self._call, self.calls = call, 0

    def __get__(self, instance, owner=None):
        async def counted(*args):
            self.calls += 1
            await self._call(instance, *args)

        return counted


def _refusals(said):
    return [each for each in said if each["event"] == "commands handed back"]
