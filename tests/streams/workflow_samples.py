"""Samples of events and commands of workflows, as `samples.py` has them of all others."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from streams.json import raw
from streams.model.commands import (
    Advance,
    CancelWorkflow,
    DecideStep,
    ResumeWorkflow,
    StepDone,
    Verdict,
    WorkflowCommand,
)
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowResumed,
    WorkflowStarted,
)
from streams.model.triggers import Budget, ManualTrigger, Mode, Overrides, WorkflowTrigger
from streams.model.waits import Approval, GivenApproval
from streams.model.workflows import (
    OnFailure,
    ParentStep,
    Remedy,
    ResumeHow,
    SkipReason,
    StepOutcome,
    StepSpec,
    Task,
    WorkflowSpec,
    WorkflowStatus,
)

AT: Final = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

TASK: Final = Task(
    actor_id="risk",
    expectation_id="rate",
    budget=Budget(turns=5),
    spec_rev="r1",
    subject_key="client.id",
    priority=-2,
    overrides=Overrides(tools={"mail.send": raw({"id": 7})}),
)

SPEC: Final = WorkflowSpec(
    name="review",
    steps=(
        StepSpec(id="screen", task=Task(actor_id="a", expectation_id="e", budget=Budget())),
        StepSpec(
            id="rate",
            task=TASK,
            depends_on=("screen",),
            functions=("for_each", "when"),
            on_failure=OnFailure(
                attempts_max=3, backoff_s=2.5, skip_on=("bad_input",), then=Remedy.PAUSE
            ),
            timeout_s=600.0,
            requires_approval=True,
            approvers=("ada", "bob"),
            approval_expires_s=3600.0,
            compensation=TASK,
        ),
        StepSpec(id="onboard", workflow="onboarding", on_failure=OnFailure(then=Remedy.CONTINUE)),
    ),
    subject_key="client.id",
    timeout_s=86400.0,
    overlap="skip",
)

APPROVAL: Final = Approval(plan_hash="cd" * 32, summary="step rate: risk/rate, 2 times")
GIVEN: Final = Approval(
    plan_hash="ef" * 32,
    plan=raw({"wipe": "/srv"}),
    summary="wipe the disk",
    approvers=("ada", "group:oncall"),
    quorum=2,
    barred="bob",
    given=(GivenApproval(by="ada", at=AT, reason="why not", decision_id="d1"),),
    asked_hash="cd" * 32,
    asked_plan=raw({"wipe": "/var"}),
)

WORKFLOW_EVENTS: Final[dict[str, tuple[WorkflowEvent, ...]]] = {
    "workflow.started@1": (
        WorkflowStarted(
            instance_id="i1",
            spec=SPEC,
            trigger=WorkflowTrigger(
                workflow_instance_id="i0",
                workflow_step_id="review",
                workflow_id="intake",
                workflow_step_no=2,
                item=3,
                attempt=4,
                is_compensation=True,
                input={"client": {"id": "münchen-1"}},
                entity_id="münchen-1",
                hops=5,
            ),
            dedupe_key="workflow:i0/review/3/4",
            subject="münchen-1",
            generation=1,
            mode=Mode.DRY_RUN,
            overrides=Overrides(synthesis=raw("well"), persist_findings="dry"),
            step_overrides={"rate": Overrides(synthesis=raw(1))},
            parent=ParentStep(
                workflow="intake", instance_id="i0", step="review", item=3, attempt=4
            ),
            depth=1,
        ),
        WorkflowStarted(
            instance_id="i2",
            spec=WorkflowSpec(name="w", steps=()),
            trigger=ManualTrigger(requested_by="ada"),
            dedupe_key="manual:1",
        ),
    ),
    "workflow.step_prepared@1": (
        StepPrepared(step="rate", inputs=(raw({"client": 1}), raw({}))),
        StepPrepared(step="rate", inputs=()),
    ),
    "workflow.step_approval_asked@1": (
        StepApprovalAsked(step="rate", inputs=(raw({"client": 1}),), approval=APPROVAL),
    ),
    "workflow.step_approval_given@1": (
        StepApprovalGiven(
            step="rate",
            by="ada",
            reason="why not",
            decision_id="d1",
            approval=GIVEN,
            inputs=(raw({"client": 1}),),
        ),
        StepApprovalGiven(step="rate", by="ada", approval=GIVEN, inputs=()),
    ),
    "workflow.step_approved@1": (
        StepApproved(step="rate", by="ada", reason="why not", decision_id="d1"),
        StepApproved(step="rate", by=""),
    ),
    "workflow.step_denied@1": (
        StepDenied(step="rate", by="ada", reason="no", decision_id="d1", is_expiry=True),
        StepDenied(step="rate", by=""),
    ),
    "workflow.step_begun@1": (
        StepBegun(step="rate", item=1, attempt=2, episode_id="e1"),
        StepBegun(step="rate", item=0, attempt=1, episode_id="e1", budget_usd=Decimal("0.50")),
    ),
    "workflow.step_ended@1": (
        StepEnded(
            step="rate",
            item=1,
            attempt=2,
            episode_id="e1",
            outcome=StepOutcome.FAILED,
            error_class="crash",
            error_detail="boom",
        ),
        StepEnded(step="rate", item=0, attempt=1, outcome=StepOutcome.DONE, result=raw([1, "ü"])),
        StepEnded(step="rate", item=0, attempt=1, outcome=StepOutcome.CANCELED),
        StepEnded(
            step="rate", item=0, attempt=1, outcome=StepOutcome.DONE, spent_usd=Decimal("0.20")
        ),
    ),
    "workflow.step_reused@1": (
        StepReused(step="rate", item=1, episode_id="e0", result=raw({"score": 7})),
        StepReused(step="rate", item=0, episode_id="e0"),
    ),
    "workflow.step_postponed@1": (StepPostponed(step="rate", item=1, attempt=2, retry_at=AT),),
    "workflow.step_skipped@1": (
        StepSkipped(step="rate", item=0, reason=SkipReason.CONDITION),
        StepSkipped(step="rate", item=1, reason=SkipReason.FAILED),
    ),
    "workflow.step_paused@1": (StepPaused(step="rate", item=1),),
    "workflow.resumed@1": (
        WorkflowResumed(
            step="rate", how=ResumeHow.RETRY, by="ada", reason="mended", resume_id="r1"
        ),
        WorkflowResumed(step="rate", how=ResumeHow.SKIP, by="ada"),
    ),
    "workflow.aborted@1": (
        WorkflowAborted(error_class="crash", error_detail="boom", step="rate"),
        WorkflowAborted(error_class="workflow_timeout"),
    ),
    "workflow.cancel_asked@1": (
        WorkflowCancelAsked(by="ada", reason="not wanted"),
        WorkflowCancelAsked(by="ada"),
    ),
    "workflow.compensation_begun@1": (
        CompensationBegun(step="rate", item=1, attempt=2, episode_id="e2"),
    ),
    "workflow.compensation_ended@1": (
        CompensationEnded(
            step="rate",
            item=1,
            attempt=2,
            episode_id="e2",
            outcome=StepOutcome.FAILED,
            error_class="crash",
            error_detail="boom",
            retry_at=AT,
        ),
        CompensationEnded(
            step="rate", item=0, attempt=1, episode_id="e3", outcome=StepOutcome.DONE
        ),
    ),
    "workflow.finished@1": (
        WorkflowFinished(
            status=WorkflowStatus.FAILED,
            error_class="crash",
            error_detail="boom",
            step="rate",
            not_undone=("screen",),
        ),
        WorkflowFinished(status=WorkflowStatus.DONE),
        WorkflowFinished(status=WorkflowStatus.CANCELED),
    ),
}

WORKFLOW_COMMANDS: Final[dict[str, WorkflowCommand]] = {
    "advance@1": Advance(workflow="review", instance_id="i1"),
    "step_done@1": StepDone(
        workflow="review",
        instance_id="i1",
        step="rate",
        item=1,
        attempt=2,
        episode_id="e1",
        is_compensation=True,
    ),
    "resume_workflow@1": ResumeWorkflow(
        workflow="review",
        instance_id="i1",
        id="r1",
        step="rate",
        how=ResumeHow.RETRY,
        by="ada",
        reason="mended",
    ),
    "cancel_workflow@1": CancelWorkflow(
        workflow="review", instance_id="i1", by="ada", reason="not wanted"
    ),
    "decide_step@1": DecideStep(
        workflow="review",
        instance_id="i1",
        id="d1",
        step="rate",
        verdict=Verdict.DENY,
        plan_hash="cd" * 32,
        by="ada",
        reason="no",
    ),
}
