"""What people and programs ask of workflows, and why it may be refused at once."""

from __future__ import annotations

import asyncio

import pytest

from engine import (
    BadRequest,
    Refused,
    cancel_workflow,
    decide_step,
    overrides,
    resume_workflow,
)
from engine.firing import fired_episode_id
from engine.runtime.workflow_requests import start_workflow
from engine.workflows.starter import START, starter_id
from engine.workflows.workflow import Workflow
from streams.events import EpisodeFinished, StepApproved
from streams.triggers import Mode
from streams.workflows import StepStatus, WorkflowStatus
from tests.engine.runtime.stage import WAIT_S, running
from tests.engine.runtime.workflow_stage import Script, app_of, ended, history, instance, reached

NOBODY = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def script() -> Script:
    return Script()


def flow(**step) -> Workflow:
    made = Workflow("w")
    made.step("a", "act", "a", **step)
    return made


def waits(status: StepStatus):
    return lambda so_far: [*so_far.with_status(status)]


async def test_asking_twice_with_one_key_begins_one_instance(ports, script):
    async with running(app_of(flow(), script=script), ports):
        ids = {await start_workflow(ports, "w", by="ada", key="k") for _ in range(2)}
        (id_,) = ids
        await ended(ports, id_)
    assert script.called("a") == 1


async def test_a_step_that_waits_for_approval_runs_once_it_is_approved(ports, script):
    made = flow(requires_approval=True, approvers=["ada"])
    async with running(app_of(made, script=script), ports):
        id_ = await start_workflow(ports, "w", {"x": 1}, by="bob")
        asking = await reached(ports, id_, waits(StepStatus.AWAITING_APPROVAL))
        hash_ = asking.steps["a"].asked.approval.plan_hash
        with pytest.raises(Refused, match="none of those who may decide"):
            await decide_step(ports, id_, "a", "approve", plan_hash=hash_, by="bob")
        with pytest.raises(Refused, match="another plan"):
            await decide_step(ports, id_, "a", "approve", plan_hash="0" * 64, by="ada")
        decision = await decide_step(ports, id_, "a", "approve", plan_hash=hash_, by="ada")
        await ended(ports, id_)
    (approved,) = [e for e in await history(ports, id_) if isinstance(e, StepApproved)]
    assert (approved.by, approved.decision_id) == ("ada", decision)


async def test_a_denied_step_has_failed(ports, script):
    async with running(app_of(flow(requires_approval=True), script=script), ports):
        id_ = await start_workflow(ports, "w", by="bob")
        asking = await reached(ports, id_, waits(StepStatus.AWAITING_APPROVAL))
        hash_ = asking.steps["a"].asked.approval.plan_hash
        await decide_step(ports, id_, "a", "deny", plan_hash=hash_, by="ada")
        over = await ended(ports, id_)
    assert (over.status, over.finished.error_class) == (WorkflowStatus.FAILED, "denied")


async def test_only_what_is_paused_is_resumed(ports, script):
    script.failures["a"] = 1
    async with running(app_of(flow(on_failure="pause"), script=script), ports):
        id_ = await start_workflow(ports, "w", by="bob")
        await reached(ports, id_, waits(StepStatus.PAUSED))
        with pytest.raises(Refused, match="'b' is not paused; paused: a"):
            await resume_workflow(ports, id_, "b", how="retry", by="ada")
        await resume_workflow(ports, id_, "a", how="retry", by="ada")
        await ended(ports, id_)
    assert script.called("a") == 2


async def test_what_is_over_is_not_canceled(ports, script):
    async with running(app_of(flow(), script=script), ports):
        id_ = await start_workflow(ports, "w", by="bob")
        await ended(ports, id_)
    with pytest.raises(Refused, match="it is done by now"):
        await cancel_workflow(ports, id_, by="ada")


async def test_what_runs_is_canceled(ports, script):
    script.hold("a")
    async with running(app_of(flow(), script=script), ports):
        id_ = await start_workflow(ports, "w", by="bob")
        await script.wait_called("a")
        await cancel_workflow(ports, id_, by="ada", reason="a typo")
        over = await ended(ports, id_)
    assert (over.status, over.cancel_asked.reason) == (WorkflowStatus.CANCELED, "a typo")


async def test_an_instance_that_is_not_there_is_refused(ports):
    with pytest.raises(Refused, match="there is no such instance"):
        await cancel_workflow(ports, NOBODY, by="ada")
    assert (await instance(ports, NOBODY)).started is None


@pytest.mark.parametrize(
    ("field", "asking"),
    [
        ("instance_id", lambda ports: cancel_workflow(ports, "i1", by="ada")),
        ("by", lambda ports: cancel_workflow(ports, NOBODY, by="")),
        ("how", lambda ports: resume_workflow(ports, NOBODY, "a", how="again", by="ada")),
        (
            "verdict",
            lambda ports: decide_step(ports, NOBODY, "a", "maybe", plan_hash="0" * 64, by="ada"),
        ),
        (
            "plan_hash",
            lambda ports: decide_step(ports, NOBODY, "a", "deny", plan_hash="0", by="ada"),
        ),
        ("workflow", lambda ports: start_workflow(ports, "a.b", by="ada")),
    ],
)
async def test_what_is_impossible_names_its_field(ports, field, asking):
    with pytest.raises(BadRequest, match=f"^{field}"):
        await asking(ports)


async def test_overrides_of_a_step_go_before_those_of_all_steps(ports, script):
    made = flow()
    made.step("b", "act", "b")
    general, own = ({f"script.{name}": who for name in "ab"} for who in ("all", "own"))
    async with running(app_of(made, script=script), ports):
        id_ = await start_workflow(
            ports,
            "w",
            by="ada",
            dry_run=True,
            overrides=overrides(tools=general),
            step_overrides={"b": overrides(tools=own)},
        )
        over = await ended(ports, id_)
    results = {name: step.result(over.specs[name]) for name, step in over.steps.items()}
    assert (results, script.calls) == ({"a": "all", "b": "own"}, [])


async def test_only_a_dry_run_has_overrides_of_steps_even_if_they_say_nothing(ports):
    with pytest.raises(BadRequest, match="step_overrides: only a dry run has any"):
        await start_workflow(ports, "w", by="ada", step_overrides={})


async def test_overrides_of_a_step_that_is_not_there_begin_nothing_and_the_episode_says_so(
    ports, script
):
    asked = {"by": "ada", "key": "k", "dry_run": True, "step_overrides": {"c": overrides()}}
    async with running(app_of(flow(), script=script), ports):
        id_ = await start_workflow(ports, "w", **asked)
        episode = fired_episode_id(
            stack=ports.stack.name,
            actor=starter_id("w"),
            expectation=START,
            key="k",
            mode=Mode.DRY_RUN,
        )
        finished = await lived(ports, episode)
    assert finished.error_class == "workflow_not_started"
    assert "there is no step 'c'" in finished.error_detail
    assert await history(ports, id_) == []


async def lived(ports, episode_id) -> EpisodeFinished:
    """Wait until an episode has ended, and return how."""
    async with asyncio.timeout(WAIT_S), ports.log.follow() as follower:
        while True:
            for record in await follower.receive(most=100, wait_s=WAIT_S):
                for each in record.commit.events:
                    is_ours = record.subject == ports.stack.episode(episode_id)
                    if is_ours and isinstance(each, EpisodeFinished):
                        return each
