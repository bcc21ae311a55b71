"""What people and programs ask of workflows, and why it may be refused at once."""

from __future__ import annotations

import pytest

from engine import BadRequest, Refused, cancel_workflow, decide_step, resume_workflow
from engine.runtime.workflow_requests import start_workflow
from engine.workflows.workflow import Workflow
from streams.events import StepApproved
from streams.workflows import StepStatus, WorkflowStatus
from tests.engine.runtime.stage import running
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
