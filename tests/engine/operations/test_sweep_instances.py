"""A sweep of instances: what was lost with its queue goes on, and what is well is left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.workflow import Workflow
from engine.app.workflow_plan import spec_of
from engine.episodes.recovery import SweepVerdict
from engine.operations.sweep import InstanceSweeper
from engine.workflows.begin import begin_instance
from engine.workflows.decide import decide
from engine.workflows.effects import follow_up
from engine.workflows.requests import cancel_workflow
from engine.workflows.start import start_of, started
from engine.workflows.steps import Code
from streams.clock import SystemClock
from streams.model.commands import Advance
from streams.model.events import EndStatus, EpisodeFinished
from streams.model.triggers import ManualTrigger
from streams.model.workflows import StepStatus, WorkflowStatus
from streams.ports.log import Commit
from tests.engine.stage import running, write
from tests.engine.workflow_stage import Script, app_of, begin, ended, instance, reached

STALE_AFTER_S = 120.0


class Later(SystemClock):
    """A clock by which everything happened an hour ago."""

    def now(self):
        return super().now() + timedelta(hours=1)


@pytest.fixture
def app():
    made = Workflow("w")
    made.step("a", "act", "a")
    made.step("b", "act", "b", depends_on=["a"], requires_approval=True)
    return app_of(made, script=Script())


async def swept(ports, id_, *, is_dry=False, clock=None):
    sweeper = InstanceSweeper(ports, clock or Later(), STALE_AFTER_S, is_dry)
    (verdict,) = await sweeper.sweep([id_])
    return verdict


async def emptied(ports) -> None:
    """Lose the commands that wait, as somebody does who empties the queue."""
    source = await ports.commands.open_workflow("w")
    for delivery in await source.receive(room=100, wait_s=0):
        await delivery.ack()
    await source.close()


async def forgotten(ports, app):
    """An instance that has begun, and nobody was called to."""
    spec = spec_of(app.workflows["w"], app.actors)
    trigger = ManualTrigger(requested_by="ada")
    event = started(spec, start_of(spec.name, trigger, "manual:k", stack=ports.stack.name))
    await begin_instance(ports, event, at=SystemClock().now())
    await emptied(ports)
    return event.instance_id


def asks(so_far):
    return [*so_far.with_status(StepStatus.AWAITING_APPROVAL)]


async def test_an_instance_whose_queue_was_emptied_goes_on(ports, app):
    id_ = await forgotten(ports, app)
    assert await swept(ports, id_, clock=SystemClock()) is SweepVerdict.HELD
    assert await swept(ports, id_, is_dry=True) is SweepVerdict.RECOVERED
    async with running(app, ports):
        assert await swept(ports, id_) is SweepVerdict.RECOVERED
        await reached(ports, id_, asks)


async def test_an_end_that_was_lost_is_told_again(ports, app):
    id_ = await forgotten(ports, app)
    begun = await instance(ports, id_)
    code = Code(workflow=app.workflows["w"], stack=ports.stack.name)
    advance = Advance(workflow="w", instance_id=id_)
    now = SystemClock().now()
    commit = Commit(id="c2", at=now, events=decide(begun, advance, code=code, at=now))
    await ports.log.append(ports.stack.workflow(id_), commit, after=begun.version)
    (opened,) = follow_up(await instance(ports, id_)).opens
    await write(ports, opened.episode_id, opened, EpisodeFinished(status=EndStatus.DONE))

    assert await swept(ports, id_) is SweepVerdict.RECOVERED
    async with running(app, ports):
        done = await reached(ports, id_, asks)
    assert done.steps["a"].items[0].status is StepStatus.DONE


async def test_what_waits_for_people_is_left_alone_and_what_is_over_needs_nothing(ports, app):
    async with running(app, ports):
        id_ = await begin(ports, "w")
        await reached(ports, id_, asks)
        assert await swept(ports, id_) is SweepVerdict.WAITING
        await cancel_workflow(ports, id_, by="ada")
        assert (await ended(ports, id_)).status is WorkflowStatus.CANCELED
    assert await swept(ports, id_) is SweepVerdict.ENDED


async def test_what_is_not_there_needs_nothing(ports):
    assert await swept(ports, "00000000-0000-8000-8000-000000000000") is SweepVerdict.ENDED
