"""Commits of every kind of aggregate, as a journal has them."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from streams.json import raw
from streams.model.events import (
    BlockReason,
    DeadDiscarded,
    DeadLettered,
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionKind,
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    FindingExpired,
    FindingRaised,
    FindingUpdated,
    LogEvent,
    OutputApproved,
    OutputAttempted,
    OutputDelivered,
    OutputFailed,
    OutputProposed,
    OutputRetried,
    Resolution,
    StepKind,
    StepRecorded,
)
from streams.model.findings import Cause, DueTimer, Finding, FindingStatus
from streams.model.outputs import OutputIntent
from streams.model.triggers import Budget, EventTrigger, Mode, Overrides, WorkflowTrigger
from streams.model.waits import Approval, Wait
from streams.ports.log import Commit, Recorded
from streams.subjects import Stack
from tests.spec import EPOCH

STACK = Stack("s")

OPENED = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=EventTrigger(event_id="x1", event_type="a.b", payload={"big": "x" * 100}, hops=3),
    dedupe_key="d",
    budget=Budget(),
)
OF_STEP = replace(
    OPENED,
    trigger=WorkflowTrigger(
        workflow_instance_id="w1", workflow_step_id="rate", workflow_id="onboard", item=2
    ),
)
DRY = replace(OPENED, mode=Mode.DRY_RUN)
KEPT = replace(DRY, overrides=Overrides(persist_findings="try"))
STARTED = EpisodeStarted(node="n1", attempt=1)
STEP = StepRecorded(step_no=1, kind=StepKind.TOOL_CALL, fingerprint="f")
CONVERGED = EpisodeConverged(
    summary="all is well",
    confidence=0.9,
    classification=raw({"primary": "ok"}),
    outputs=(OutputIntent(adapter="hook", payload=raw({}), dedupe_key="o1"),),
)
FINISHED = EpisodeFinished(status=EndStatus.DONE)
LEFT = EpisodeLeft(node="n1")
DEFERRED = EpisodeDeferred(pending=("o1",))
BLOCKED = EpisodeBlocked(
    step_no=2,
    reason=BlockReason.WAIT,
    fingerprint="f",
    wait=Wait(ref="order-7", expires_at=EPOCH + timedelta(hours=1)),
)
RESOLVED = EpisodeResolved(step_no=2, resolution=Resolution.RESOLVED, by="shop")

FINDING = Finding(
    finding_key="disk",
    raise_no=1,
    status=FindingStatus.ACTIVE,
    actor_id="monitor",
    expectation_id="limits",
    raised_by_episode_id="e1",
    raised_at=EPOCH,
    updated_at=EPOCH,
)
CAUSE = Cause(episode_id="e1", index=0)
RAISED = FindingRaised(finding=FINDING, cause=CAUSE)
ENRICHED = FindingUpdated(
    finding=replace(FINDING, summary="web team"), cause=CAUSE, is_enrichment=True
)
EXPIRED = FindingExpired(
    finding=replace(FINDING, status=FindingStatus.EXPIRED), cause=DueTimer(timer_id="t1")
)

PROPOSED = OutputProposed(
    output_key="o1",
    adapter="hook",
    payload=raw({"big": "x" * 100}),
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
)
APPROVAL = Approval(plan_hash="h", summary="send it?", approvers=("ops",))
TO_APPROVE = replace(PROPOSED, approval=APPROVAL)
APPROVED = OutputApproved(by="ann", reason="fine")
ATTEMPTED = OutputAttempted(attempt=1, node="n1")
FAILED = OutputFailed(attempt=1, error_class="http_400", error_detail="no")
RETRIED = OutputRetried(by="ann")
DELIVERED = OutputDelivered(attempt=2, delivered_ref="r7")

LETTER = DeadLettered(
    reason="unreadable",
    detail="secret",
    stream="s-events",
    seq=7,
    subject="s.event.a",
    headers={"h": "secret"},
    payload=b"secret",
)
DISCARDED = DeadDiscarded(by="ann")

APPLIED = DefinitionApplied(
    kind=DefinitionKind.AGENT, id="monitor", revision=2, body=raw({}), by="ann", reason="why not"
)
DISABLED = DefinitionDisabled(kind=DefinitionKind.AGENT, id="monitor", revision=2, by="ann")


def recorded(subject: str, seq: int, *events: LogEvent) -> Recorded:
    commit = Commit(id=f"c{seq}", at=EPOCH, events=events, trace=f"trace-{seq}")
    return Recorded(subject=subject, seq=seq, commit=commit)


def commits(
    subject: str, *parts: LogEvent | tuple[LogEvent, ...], first: int = 1
) -> list[Recorded]:
    """Return a commit for each part, at 1, 2, 3 and so on."""
    return [
        recorded(subject, seq, *(part if isinstance(part, tuple) else (part,)))
        for seq, part in enumerate(parts, start=first)
    ]
