"""What people and programs ask of workflows, and why it may be refused at once."""

from __future__ import annotations

import hashlib
from functools import partial

import pytest

from engine.app.workflow import Workflow
from engine.episodes.fire import fire
from engine.errors import NotOnJournal
from engine.workflows.requests import Beginning, read_beginning, start_workflow
from streams.json import unraw
from streams.model.events import StepApproved
from streams.model.workflows import StepStatus, WorkflowStatus
from tests.engine.stage import decide, eventually, running, told
from tests.engine.workflow_stage import Script, app_of, ended, history, instance, reached
from vigil import BadRequest, Refused, overrides
from vigil.ports import cancel_workflow, resume_workflow

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
        await reached(ports, id_, waits(StepStatus.AWAITING_APPROVAL))
        decision = await decide(ports, id_, kind="step", step="a")
        await ended(ports, id_)
    (approved,) = [e for e in await history(ports, id_) if isinstance(e, StepApproved)]
    assert (approved.by, approved.decision_id) == ("ada", decision)


async def test_who_approves_a_step_may_change_its_inputs(ports, script):
    made = flow(requires_approval=True)
    async with running(app_of(made, script=script), ports):
        id_ = await start_workflow(ports, "w", {"x": 1}, by="bob")
        await reached(ports, id_, waits(StepStatus.AWAITING_APPROVAL))
        approve = partial(decide, ports, id_, kind="step", step="a")
        with pytest.raises(BadRequest, match=r"plan: .* is not a list of JSON objects"):
            await approve(plan={"y": 2})
        with pytest.raises(Refused, match="2 inputs; the step has 1 items"):
            await approve(plan=[{}, {}])
        await approve(plan=[{"y": 2}])
        over = await ended(ports, id_)
    assert [unraw(each) for each in over.steps["a"].inputs] == [{"y": 2}]
    (approved,) = [e for e in await history(ports, id_) if isinstance(e, StepApproved)]
    assert approved.edited_hash == hashlib.sha256(b'[{"y":2}]').hexdigest()


async def test_a_denied_step_has_failed(ports, script):
    async with running(app_of(flow(requires_approval=True), script=script), ports):
        id_ = await start_workflow(ports, "w", by="bob")
        await reached(ports, id_, waits(StepStatus.AWAITING_APPROVAL))
        await decide(ports, id_, "deny", kind="step", step="a")
        over = await ended(ports, id_)
    assert (over.status, over.finished.error_class) == (WorkflowStatus.FAILED, "denied")


async def test_only_what_is_paused_is_resumed(ports, script):
    script.failures["a"] = 1
    async with running(app_of(flow(on_failure="pause"), script=script), ports):
        id_ = await start_workflow(ports, "w", by="bob")
        await reached(ports, id_, waits(StepStatus.PAUSED))
        with pytest.raises(NotOnJournal, match="it has no step 'b'; its steps: a"):
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


async def test_overrides_of_a_step_that_is_not_there_start_nothing_and_the_instance_says_so(
    ports, script
):
    asked = {"by": "ada", "key": "k", "dry_run": True, "step_overrides": {"c": overrides()}}
    async with running(app_of(flow(), script=script), ports):
        never = await ended(ports, await start_workflow(ports, "w", **asked))
    assert (never.finished.error_class, never.steps) == ("workflow_not_started", {})
    assert "there is no step 'c'" in never.finished.error_detail


async def test_who_asks_learns_that_an_instance_has_begun(ports, script):
    async with running(app_of(flow(), script=script), ports):
        id_ = await start_workflow(ports, "w", by="ada", key="k")
        await ended(ports, id_)
    assert await read_beginning(ports, "w", "k") == Beginning(instance_id=id_, has_begun=True)


async def test_who_asks_learns_nothing_while_no_node_has_taken_the_request(ports):
    id_ = await start_workflow(ports, "w", by="ada", key="k")
    assert await read_beginning(ports, "w", "k") == Beginning(instance_id=id_)


async def test_who_asks_learns_which_instance_is_busy_with_the_subject(ports, script):
    busy, id_ = await skipped_start(ports, script)
    why = f"instance {busy} was not over"
    assert await read_beginning(ports, "w", "second") == Beginning(
        instance_id=id_, busy_instance_id=busy, refused=why
    )


async def test_the_world_is_told_once_of_a_start_that_another_instance_has_kept_off(ports, script):
    busy, id_ = await skipped_start(ports, script)
    (said,) = [(name, each) for name, each in told(ports) if each.get("instance_id") == id_]
    (commit,) = await ports.log.read(ports.stack.workflow(id_))
    assert said == (
        "workflow.skipped",
        {
            "workflow": "w",
            "instance_id": id_,
            "subject": "7",
            "busy_instance_id": busy,
            "journal_seq": commit.seq,
        },
    )


async def skipped_start(ports, script) -> tuple[str, str]:
    """Have an instance begin, and another one not for its sake; return the ids of both."""
    made = Workflow("w", subject_key="client", overlap="skip")
    made.step("a", "act", "a")
    let_go = script.hold("a")
    async with running(app_of(made, script=script), ports):
        busy = await start_workflow(ports, "w", {"client": 7}, by="ada", key="first")
        await script.wait_called("a")
        id_ = await start_workflow(ports, "w", {"client": 7}, by="ada", key="second")
        await eventually(lambda: "workflow.skipped" in dict(told(ports)))
        let_go.set()
        await ended(ports, busy)
    return busy, id_


async def test_who_asks_learns_why_none_can_begin(ports, script):
    asked = {"by": "ada", "key": "k", "dry_run": True, "step_overrides": {"c": overrides()}}
    async with running(app_of(flow(), script=script), ports):
        await ended(ports, await start_workflow(ports, "w", **asked))
    said = await read_beginning(ports, "w", "k", dry_run=True)
    assert said.refused == "workflow_not_started: step_overrides: there is no step 'c'"
    assert (await read_beginning(ports, "w", "k")).refused == ""


async def test_a_workflow_is_not_fired_as_an_actor_is(ports):
    with pytest.raises(BadRequest, match="actor: workflow 'w' has no episodes; start it"):
        await fire(ports, "workflow-w", "start", by="ada")
