"""Instances that run a workflow as a step which begins nothing: they wait for it, and only for it.

A start that was decided and not made is called off, so whoever would make it later finds that.
"""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from engine.app.workflow_plan import starter_id
from engine.workflows import worker
from engine.workflows.begin import begin_instance, call_off_instance
from engine.workflows.effects import follow_up
from engine.workflows.requests import cancel_workflow
from engine.workflows.start import CONDUCT, sub_started
from streams.errors import Unavailable
from streams.model.events import StepBegun, StepEnded, WorkflowStarted
from streams.model.workflows import StepStatus, WorkflowSpec, WorkflowStatus
from tests.engine.defining import WORKFLOW, app_with, apply, disable, runs, says
from tests.engine.stage import Counter, eventually, running
from tests.engine.workflow_stage import begin, ended, history, instance, reached
from tests.engine.workflows.test_closed_workflows import Counting, closed, having, steps

OUTER = "outer"


class Unkept:
    """A log that keeps no first commit of an instance that is a step, until it is told to."""

    def __init__(self, log):
        self._log, self.refused, self.keeps = log, 0, False

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        first = commit.events[0]
        is_sub = isinstance(first, WorkflowStarted) and first.parent is not None
        if is_sub and len(commit.events) == 1 and not self.keeps:
            self.refused += 1
            raise Unavailable(subject, detail="as the test says")
        return await self._log.append(subject, commit, after=after)


async def _begin_outer(ports, **outer) -> str:
    """Begin an instance of `outer`, whose only step runs `w`, and return its id."""
    await apply(ports, having("a"))
    await apply(ports, steps("a"))
    await apply(ports, {"name": OUTER, "steps": {"sub": {"workflow": "w"}}, **outer})
    await says(ports, runs(1, starter_id(OUTER)))
    return await begin(ports, OUTER)


async def _decided(ports, log: Unkept, **outer) -> str:
    """Have an instance of `outer` decide to begin one of `w`, which it cannot; and disable `w`."""
    id_ = await _begin_outer(ports, **outer)
    await eventually(lambda: log.refused)
    await disable(ports, "w", WORKFLOW)
    await closed(ports)
    return id_


def _subs(events) -> list[str]:
    return [event.episode_id for event in events if isinstance(event, StepBegun)]


@pytest.fixture
def log(ports) -> Unkept:
    return Unkept(ports.log)


@pytest.fixture
def cut_off(ports, log):
    """What a node has whose log keeps no sub-workflows."""
    return dataclasses.replace(ports, log=log)


async def test_an_instance_can_be_canceled_whose_start_of_another_was_decided_and_not_made(
    ports, log, cut_off
):
    tool = Counter()
    async with running(app_with(tool), cut_off):
        id_ = await _decided(ports, log)
        await cancel_workflow(ports, id_, by="ada")
        assert (await ended(ports, id_)).status is WorkflowStatus.CANCELED
        (sub,) = _subs(await history(ports, id_))
        log.keeps = True
        await apply(ports, steps("a"))
        await says(ports, runs(2, starter_id("w")))
    assert (await instance(ports, sub)).status is WorkflowStatus.CANCELED
    assert tool.calls == [], "nothing of it ever begins"


async def test_a_start_that_was_called_off_is_made_once_the_workflow_may_begin(ports, log, cut_off):
    tool = Counter()
    async with running(app_with(tool), cut_off):
        id_ = await _decided(ports, log)
        await reached(ports, id_, lambda i: [*i.with_status(StepStatus.RETRYING)])
        log.keeps = True
        await apply(ports, steps("a"))
        done = await ended(ports, id_)
    first, second = _subs(await history(ports, id_))
    assert (done.status, tool.calls) == (WorkflowStatus.DONE, ["a"])
    assert (await instance(ports, first)).status is WorkflowStatus.CANCELED
    assert (await instance(ports, second)).status is WorkflowStatus.DONE


async def test_the_time_of_an_instance_is_up_though_a_start_was_decided_and_not_made(
    ports, log, cut_off
):
    async with running(app_with(), cut_off):
        id_ = await _decided(ports, log, timeout_s=1)
        done = await ended(ports, id_)
    assert (done.status, done.finished.error_class) == (WorkflowStatus.FAILED, "workflow_timeout")


async def test_who_would_begin_what_was_called_off_finds_that_it_is_over(ports, log, cut_off):
    """A node may have stood still with the start in its hands."""
    tool = Counter()
    async with running(app_with(tool), cut_off):
        id_ = await _begin_outer(ports)
        await eventually(lambda: log.refused)
    (sub,) = follow_up(await instance(ports, id_)).starts
    now = (await instance(ports, id_)).at
    assert await call_off_instance(ports, sub, at=now)
    late = sub_started(WorkflowSpec(name="w", steps=()), sub)
    assert not await begin_instance(ports, late, at=now)
    assert not await call_off_instance(ports, sub, at=now)
    async with running(app_with(tool), ports):
        done = await ended(ports, id_)
    ends = [each for each in await history(ports, id_) if isinstance(each, StepEnded)]
    assert [each.error_class for each in ends] == ["called_off", ""]
    assert (done.status, tool.calls) == (WorkflowStatus.DONE, ["a"])


async def test_one_that_has_begun_is_not_called_off_but_waited_for(ports, log, cut_off):
    """Of the node that began it, nobody else has heard by then."""
    tool = Counter(open_=False)
    async with running(app_with(tool), cut_off):
        id_ = await _begin_outer(ports)
        await eventually(lambda: log.refused)
        (sub,) = follow_up(await instance(ports, id_)).starts
        async with running(app_with(tool), ports, "other"):
            await eventually(lambda: tool.calls == ["a"])
        await disable(ports, "w", WORKFLOW)
        await closed(ports)
        tool.gate.set()
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE
    assert _subs(await history(ports, id_)) == [sub.instance_id]


async def test_what_tells_of_a_start_that_was_called_off_is_answered_for_where_none_begins(
    ports, log, cut_off
):
    """It is over, so nobody needs the workflow to follow it."""
    async with running(app_with(), cut_off):
        id_ = await _decided(ports, log)
        await reached(ports, id_, lambda i: [*i.with_status(StepStatus.RETRYING)])
        await eventually(lambda: not ports.commands._durables[starter_id("w"), 0].backlog)


async def test_other_steps_end_and_take_too_long_while_a_workflow_is_disabled(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        id_ = await _waiting_outer(ports, tool)
        late = await reached(ports, id_, lambda i: i.steps["b"].is_settled)
        assert late.steps["b"].items[0].error_class == "step_timeout"
        tool.gate.set()
        done = await reached(ports, id_, lambda i: i.steps["first"].is_settled)
        assert done.steps["sub"].items[0].status is StepStatus.PENDING
        await apply(ports, steps("a"))
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def _waiting_outer(ports, tool) -> str:
    """Begin an instance that is to run `w`, which is disabled by then, and two other steps."""
    await apply(ports, having("a", "b"))
    await apply(ports, steps("a"))
    made = {
        "first": {"actor": "worker", "expectation": "a"},
        "b": {"actor": "worker", "expectation": "b", "timeout_s": 1, "on_failure": "continue"},
        "sub": {"workflow": "w", "depends_on": ["first"]},
    }
    await apply(ports, {"name": OUTER, "steps": made})
    await says(ports, runs(1, starter_id(OUTER)))
    id_ = await begin(ports, OUTER)
    await eventually(lambda: len(tool.calls) == 2)
    await disable(ports, "w", WORKFLOW)
    await closed(ports)
    return id_


class Held:
    """A log that has stored the decision to begin another instance, and says so later."""

    def __init__(self, log):
        self._log, self.is_stored, self.may_say = log, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        seq = await self._log.append(subject, commit, after=after)
        if any(isinstance(event, StepBegun) for event in commit.events):
            self.is_stored.set()
            await self.may_say.wait()
        return seq


async def test_a_start_whose_workflow_goes_while_it_is_decided_is_called_off_once(ports):
    held = Held(ports.log)
    async with running(app_with(), dataclasses.replace(ports, log=held)):
        id_ = await _begin_outer(ports)
        await held.is_stored.wait()
        await disable(ports, "w", WORKFLOW)
        await closed(ports)
        held.may_say.set()
        await reached(ports, id_, lambda i: [*i.with_status(StepStatus.RETRYING)])
        await eventually(lambda: ports.commands._durables[starter_id(OUTER), 0].backlog)
        assert len(_subs(await history(ports, id_))) == 1
        await apply(ports, steps("a"))
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE
    assert len(_subs(await history(ports, id_))) == 2


async def test_what_is_to_be_tried_again_and_cannot_begin_calls_nobody_over_and_over(
    ports, log, cut_off, monkeypatch
):
    """Its message is handed back, later each time; each timer would bring another message."""
    handed_back = Counting(worker._hand_back)
    monkeypatch.setattr(worker, "_hand_back", handed_back)
    async with running(app_with(), cut_off):
        id_ = await _decided(ports, log, timeout_s=600)
        await reached(ports, id_, lambda i: [*i.with_status(StepStatus.RETRYING)])
        before = handed_back.calls
        await eventually(lambda: handed_back.calls > before + 4)
        timer = await ports.timers.pending(starter_id(OUTER), CONDUCT, id_)
    assert timer is not None, "of its time, and of nothing else"
    begun = (await instance(ports, id_)).started_at
    assert (timer.due_at - begun).total_seconds() == 600


async def test_a_workflow_begins_as_a_step_though_its_subject_is_busy(ports):
    """The outer instance has its own input, and needs a result of that."""
    tool, alone = Counter(open_=False), {"subject_key": "client", "overlap": "skip"}
    async with running(app_with(tool), ports):
        await apply(ports, having("a"))
        await apply(ports, {**steps("a"), **alone})
        sub = {"workflow": "w", "input": {"client": "trigger.client"}}
        await apply(ports, {"name": OUTER, "steps": {"sub": sub}})
        await says(ports, runs(1, starter_id(OUTER)))
        busy = await begin(ports, "w", {"client": 7})
        await eventually(lambda: tool.calls == ["a"])
        id_ = await begin(ports, OUTER, {"client": 7})
        await eventually(lambda: tool.calls == ["a", "a"])
        tool.gate.set()
        for each in (busy, id_):
            assert (await ended(ports, each)).status is WorkflowStatus.DONE
