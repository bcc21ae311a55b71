"""Workflows that begin nothing, for they are disabled or lack something: what has begun goes on.

And what was on its way to begin an instance waits until it can, here or elsewhere.
"""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from engine.app.workflow_plan import starter_id
from engine.workflows import worker
from engine.workflows.requests import cancel_workflow, resume_workflow
from streams.model.events import EpisodeStarted
from streams.model.workflows import StepStatus, WorkflowStatus
from tests.engine.defining import WORKFLOW, app_with, apply, disable, runs, says
from tests.engine.stage import WAIT_S, Counter, Scripted, decide, eventually, running
from tests.engine.workflow_stage import begin, ended, reached

STARTER = starter_id("w")


class Holding:
    """A log that holds the first start of an episode until it is let go."""

    def __init__(self, log):
        self._log, self.held, self.go = log, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        is_start = any(isinstance(each, EpisodeStarted) for each in commit.events)
        if is_start and not self.held.is_set():
            self.held.set()
            await self.go.wait()
        return await self._log.append(subject, commit, after=after)

    async def wait_held(self):
        async with asyncio.timeout(WAIT_S):
            await self.held.wait()


def having(*expectations: str, template="playing"):
    """Return the definition of `worker` with expectations that do what they are called."""
    made = {
        name: {
            "strategy": {"template": template, "config": {"actions": [name]}},
            "on": {"workflow": True},
        }
        for name in expectations
    }
    return {"id": "worker", "expectations": made}


def steps(*names: str, **more):
    """Return the definition of `w`, whose steps do what they are called, one after the other."""
    made = {
        name: {"actor": "worker", "expectation": name, "depends_on": [*names[:at][-1:]], **more}
        for at, name in enumerate(names)
    }
    return {"name": "w", "steps": made}


async def closed(ports, node: str = "n1") -> None:
    await says(ports, lambda info: STARTER not in info.actors, node)


@pytest.mark.parametrize("how", ["disabled", "unworkable"])
async def test_a_cause_waits_until_its_workflow_can_begin_again(ports, how):
    """Its episode has been taken, and has not begun anything yet."""
    log = Holding(ports.log)
    async with running(app_with(), dataclasses.replace(ports, log=log)):
        await apply(ports, having("a"))
        await apply(ports, steps("a"))
        await says(ports, runs(1, STARTER))
        id_ = await begin(ports, "w")
        await log.wait_held()
        await (disable(ports, "w", WORKFLOW) if how == "disabled" else disable(ports, "worker"))
        await closed(ports)
        log.go.set()
        await apply(ports, steps("a") if how == "disabled" else having("a"))
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def test_a_cause_is_left_to_a_node_that_still_has_the_workflow(ports):
    log = Holding(ports.log)
    old, new = app_with(), app_with(templates={"newer": lambda _: Scripted()})
    async with running(old, dataclasses.replace(ports, log=log), "old"):
        await apply(ports, having("a"))
        await apply(ports, steps("a"))
        await says(ports, runs(1, STARTER), "old")
        id_ = await begin(ports, "w")
        await log.wait_held()
        async with running(new, ports, "new"):
            await says(ports, runs(1, STARTER), "new")
            await apply(ports, having("a", template="newer"))
            await says(ports, runs(2), "new")
            await closed(ports, "old")
            log.go.set()
            assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def _close(ports, how: str) -> None:
    """Have `w` begin nothing more, in one of the ways there are."""
    match how:
        case "disabled":
            await disable(ports, "w", WORKFLOW)
        case "an expectation has gone":
            await apply(ports, having("a", "c"))
        case "what is new cannot work":
            await apply(ports, {"name": "w", "steps": {"x": {"actor": "no", "expectation": "x"}}})
        case "nobody can read it":
            await ports.registry.put("definition.workflow.w", b'{"what":"is this?"}')
    await closed(ports)


CLOSED = ["disabled", "an expectation has gone", "what is new cannot work", "nobody can read it"]


@pytest.mark.parametrize("how", CLOSED)
@pytest.mark.parametrize("end", ["done", "canceled"])
async def test_an_instance_goes_on_and_can_be_canceled_though_nothing_begins(ports, how, end):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, having("a", "b"))
        await apply(ports, steps("a", "b"))
        await says(ports, runs(1, STARTER))
        id_ = await begin(ports, "w")
        await eventually(lambda: tool.calls == ["a"])
        await _close(ports, how)
        if end == "canceled":
            await cancel_workflow(ports, id_, by="ada")
        else:
            tool.gate.set()
        assert (await ended(ports, id_)).status is WorkflowStatus(end)
    assert tool.calls == (["a", "b"] if end == "done" else ["a"])


async def test_a_node_that_comes_later_sees_to_the_instances_of_what_is_disabled(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports, "n1"):
        await apply(ports, having("a", "b"))
        await apply(ports, steps("a", "b"))
        await says(ports, runs(1, STARTER))
        id_ = await begin(ports, "w")
        await eventually(lambda: tool.calls == ["a"])
        await disable(ports, "w", WORKFLOW)
        await closed(ports)
        tool.gate.set()
    async with running(app_with(tool), ports, "n2"):
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def test_people_decide_about_instances_of_what_is_disabled(ports):
    async with running(app_with(), ports):
        await apply(ports, having("a"))
        await apply(ports, steps("a", requires_approval=True))
        await says(ports, runs(1, STARTER))
        id_ = await begin(ports, "w")
        await reached(ports, id_, waits(StepStatus.AWAITING_APPROVAL))
        await disable(ports, "w", WORKFLOW)
        await closed(ports)
        await decide(ports, id_, kind="step", step="a")
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def test_people_go_on_with_instances_of_what_is_disabled(ports):
    tool, made = Counter(open_=False), steps("a", timeout_s=0.2, on_failure="pause")
    async with running(app_with(tool), ports):
        await apply(ports, having("a"))
        await apply(ports, made)
        await says(ports, runs(1, STARTER))
        id_ = await begin(ports, "w")
        await reached(ports, id_, waits(StepStatus.PAUSED))
        await disable(ports, "w", WORKFLOW)
        await closed(ports)
        tool.gate.set()
        await resume_workflow(ports, id_, "a", how="retry", by="ada")
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


def waits(status: StepStatus):
    return lambda so_far: [*so_far.with_status(status)]


@pytest.mark.parametrize("what", ["a pause between tries", "its time"])
async def test_what_is_due_about_an_instance_of_what_is_disabled_happens(ports, what):
    """Its timers are the business of whoever begins it, otherwise."""
    tool = Counter(open_=False)
    made = steps("a")
    if what == "its time":
        made["timeout_s"] = 0.5
    else:
        retrying = {"attempts": 2, "backoff_s": 0.3, "then": "abort"}
        made["steps"]["a"] |= {"on_failure": {"retry": retrying}, "timeout_s": 0.2}
    async with running(app_with(tool), ports):
        await apply(ports, having("a"))
        await apply(ports, made)
        await says(ports, runs(1, STARTER))
        id_ = await begin(ports, "w")
        await eventually(lambda: tool.calls == ["a"])
        await disable(ports, "w", WORKFLOW)
        await closed(ports)
        assert (await ended(ports, id_)).status is WorkflowStatus.FAILED
    assert len(tool.calls) == (1 if what == "its time" else 2)


async def _running_outer(ports, tool) -> str:
    """Begin an instance of `outer`, whose next step runs `w`, and disable that."""
    await apply(ports, having("a"))
    await apply(ports, steps("a"))
    sub = {"workflow": "w", "depends_on": ["first"]}
    first = {"actor": "worker", "expectation": "a"}
    await apply(ports, {"name": "outer", "steps": {"first": first, "sub": sub}})
    await says(ports, runs(1, "workflow-outer"))
    id_ = await begin(ports, "outer")
    await eventually(lambda: tool.calls == ["a"])
    await disable(ports, "w", WORKFLOW)
    await closed(ports)
    return id_


async def test_an_instance_waits_for_as_long_as_a_workflow_that_it_runs_is_disabled(
    ports, monkeypatch
):
    """Nobody is at fault, so nothing is given up, however long that takes."""
    monkeypatch.setattr(worker, "HOPELESS_DELIVERIES", 2)
    monkeypatch.setattr(worker, "HOPELESS_S", 0.0)
    handed_back = Counting(worker._hand_back)
    monkeypatch.setattr(worker, "_hand_back", handed_back)
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        id_ = await _running_outer(ports, tool)
        tool.gate.set()
        await eventually(lambda: handed_back.calls > 3)
        await apply(ports, steps("a"))
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


class Counting:
    def __init__(self, call):
        self._call, self.calls = call, 0

    async def __call__(self, delivery):
        self.calls += 1
        await self._call(delivery)


async def test_an_instance_can_be_canceled_while_a_workflow_that_it_runs_is_disabled(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        id_ = await _running_outer(ports, tool)
        await cancel_workflow(ports, id_, by="ada")
        assert (await ended(ports, id_)).status is WorkflowStatus.CANCELED
