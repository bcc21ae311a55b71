"""One full and one minimal sample of every event and command, by wire tag.

The golden files were written from these. A sample never changes and is never removed; a
new tag adds a sample here and a golden file beside (`python -m tests.streams.golden`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from streams.json import raw
from streams.model.commands import (
    Attend,
    Cancel,
    CancelOutput,
    Carry,
    ChildEnded,
    Command,
    Decide,
    Recover,
    Resolve,
    RetryOutput,
    ShareDecision,
    Start,
    Verdict,
)
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BlockReason,
    BreakerReset,
    CheckpointSaved,
    DeadDiscarded,
    DeadLettered,
    DeadRequeued,
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionKind,
    EndStatus,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    FindingAcknowledged,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingExpired,
    FindingNoted,
    FindingRaised,
    FindingUpdated,
    GroupsSet,
    HoldAdded,
    HoldRemoved,
    IdentityLinked,
    KindsEncrypted,
    LaneKept,
    LaneMoved,
    LayoutSet,
    LinkIssued,
    LinkUsed,
    LogEvent,
    LoginKept,
    LoginRequired,
    LoginWaived,
    NodeModeSet,
    NodeModeUnset,
    OutputApprovalGiven,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputForgone,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    PasswordSet,
    PersonAdded,
    PersonRemoved,
    Resolution,
    RetentionDeclared,
    RoleSet,
    RowsCut,
    SessionBegun,
    SessionEnded,
    SessionUsed,
    SignalGiven,
    SignalWaited,
    SignInRefused,
    StepAnnounced,
    StepKind,
    StepRecorded,
    SubjectErased,
    TokenIssued,
    TokenRevoked,
    ViewsSaved,
)
from streams.model.findings import (
    Cause,
    ClearFinding,
    DueTimer,
    Finding,
    FindingOutcome,
    FindingStatus,
    Person,
    RaiseFinding,
    Severity,
    UpdateFinding,
)
from streams.model.lanes import Ticket
from streams.model.modes import NodeMode
from streams.model.outputs import OutputOutcome
from streams.model.people import LoginSession, Role, SavedView, SignInWay
from streams.model.retention import HoldKind, RetentionCut, RetentionField
from streams.model.triggers import Budget, EventTrigger, ManualTrigger
from streams.model.waits import Approval, OnExpiry, Wait
from tests.streams.workflow_samples import GIVEN, WORKFLOW_EVENTS

AT: Final = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

ACTIVE: Final = Finding(
    finding_key="host:disk:münchen-1",
    raise_no=2,
    status=FindingStatus.ACTIVE,
    actor_id="monitor",
    expectation_id="limits",
    class_="disk_full",
    severity=Severity.HIGH,
    confidence=0.5,
    summary="disk nearly full",
    subject_kind="host",
    subject_id="münchen-1",
    evidence_json=raw({"used": 0.93}),
    caused_by_key="rack:power:3",
    raised_by_episode_id="e1",
    raised_at=AT,
    updated_at=AT,
)
CLEARED: Final = Finding(
    finding_key="k",
    raise_no=1,
    status=FindingStatus.CLEARED,
    actor_id="monitor",
    expectation_id="limits",
    raised_by_episode_id="e1",
    raised_at=AT,
    updated_at=AT,
    cleared_by_episode_id="e2",
    cleared_at=AT,
    cleared_reason="freed",
)
BARE: Final = Finding(
    finding_key="k",
    raise_no=1,
    status=FindingStatus.ACTIVE,
    actor_id="monitor",
    expectation_id="limits",
    raised_by_episode_id="e1",
    raised_at=AT,
    updated_at=AT,
)
CAUSE: Final = Cause(episode_id="e1", index=3)
TIMED: Final = DueTimer(timer_id="n1.7")
SIGNED_IN: Final = LoginSession(
    id="ab" * 8,
    secret_hash="ab" * 32,
    way=SignInWay.PASSWORD,
    begun_at=AT,
    used_at=AT,
    expires_at=AT,
    address="10.0.0.7",
    agent="Mozilla",
    rights_no=3,
)
LINKED: Final = LoginSession(
    id="ef" * 8,
    secret_hash="ef" * 32,
    way=SignInWay.LINK,
    begun_at=AT,
    used_at=AT,
    expires_at=AT,
    role=Role.ADMIN,
)
PERSON: Final = Person(by="ada", reason="false alarm")
LIMITED: Final = Finding(
    finding_key="k",
    raise_no=3,
    status=FindingStatus.EXPIRED,
    actor_id="monitor",
    expectation_id="limits",
    severity=Severity.CRITICAL,
    raised_by_episode_id="e1",
    raised_at=AT,
    updated_at=AT,
    cleared_at=AT,
    ttl_s=1.5,
    expires_at=AT,
    escalated_to=Severity.CRITICAL,
    acknowledged_by="bob",
    acknowledged_at=AT,
    cleared_by="ada",
)
TICKET: Final = Ticket(
    episode_id="e1",
    expectation_id="limits",
    number=7,
    priority=-2,
    key="münchen-1",
    key_limit=3,
    start_by=AT,
)
APPROVAL: Final = Approval(
    plan_hash="cd" * 32,
    plan=raw({"wipe": "/var", "on": ["münchen-1"]}),
    summary="wipe the disk",
    approvers=("ada", "bob"),
    expires_at=AT,
    on_expiry=OnExpiry.APPROVE,
    remind_every_s=1.5,
)
WAIT: Final = Wait(ref="payment:42", expires_at=AT, on_expiry=OnExpiry.CONTINUE, remind_every_s=1.5)

EVENTS: Final[dict[str, tuple[LogEvent, ...]]] = {
    **WORKFLOW_EVENTS,
    "episode.opened@1": (
        EpisodeOpened(
            episode_id="e1",
            actor_id="monitor",
            expectation_id="limits",
            trigger=EventTrigger(
                event_id="ev-1",
                event_type="resource.updated",
                payload={"host": "münchen-1", "disk_used": 0.93, "tags": [1, None, True]},
                entity_id="münchen-1",
                hops=2,
            ),
            dedupe_key="ev-1",
            budget=Budget(turns=5, tokens=100, wall_s=1.5),
            spec_rev="r1",
            subject_kind="host",
            generation=1,
        ),
        EpisodeOpened(
            episode_id="e2",
            actor_id="monitor",
            expectation_id="limits",
            trigger=ManualTrigger(
                requested_by="ada", reason="why not", payload={"a": {}}, entity_id="x", hops=1
            ),
            dedupe_key="d",
            budget=Budget(),
        ),
        EpisodeOpened(
            episode_id="e3",
            actor_id="monitor",
            expectation_id="limits",
            trigger=ManualTrigger(requested_by="ada"),
            dedupe_key="d",
            budget=Budget(),
        ),
    ),
    "definition.applied@1": (
        DefinitionApplied(
            kind=DefinitionKind.AGENT,
            id="disk_watch",
            revision=3,
            body=raw({"id": "disk_watch", "expectations": {}}),
            by="ada",
            reason="more room",
        ),
        DefinitionApplied(
            kind=DefinitionKind.WORKFLOW, id="onboard", revision=1, body=raw({}), by="ada"
        ),
    ),
    "definition.disabled@1": (
        DefinitionDisabled(
            kind=DefinitionKind.AGENT, id="disk_watch", revision=3, by="bob", reason="not needed"
        ),
        DefinitionDisabled(kind=DefinitionKind.WORKFLOW, id="onboard", revision=1, by="bob"),
    ),
    "order.mode_set@1": (
        NodeModeSet(
            node="n1", mode=NodeMode.TRIGGER_ONLY, actor_id="monitor", by="ada", reason="a deploy"
        ),
        NodeModeSet(node="n1", mode=NodeMode.DISABLED, by="ada"),
    ),
    "order.mode_unset@1": (
        NodeModeUnset(node="n1", actor_id="monitor", by="bob", reason="all is well"),
        NodeModeUnset(node="n1", by="bob"),
    ),
    "order.actor_paused@1": (
        ActorPaused(actor_id="monitor", by="ada", reason="new limits"),
        ActorPaused(actor_id="monitor", by="ada"),
    ),
    "order.actor_resumed@1": (
        ActorResumed(actor_id="monitor", by="bob", reason="they hold"),
        ActorResumed(actor_id="monitor", by="bob"),
    ),
    "order.breaker_reset@1": (
        BreakerReset(actor_id="monitor", expectation_id="limits", by="ada", reason="repaired"),
        BreakerReset(actor_id="monitor", expectation_id="limits", by="ada"),
    ),
    "order.layout_set@1": (
        LayoutSet(partitions=4, by="ada", reason="more room"),
        LayoutSet(partitions=1, by="ada"),
    ),
    "episode.started@1": (EpisodeStarted(node="n1", attempt=2, claim_revision=77),),
    "episode.step_announced@1": (
        StepAnnounced(
            step_no=1, fingerprint="ab" * 32, tool_name="mail.send", idempotency_key="e1:1"
        ),
    ),
    "episode.step_recorded@1": (
        StepRecorded(
            step_no=1,
            kind=StepKind.TOOL_CALL,
            fingerprint="ab" * 32,
            tool_name="disk.read",
            args=raw({"path": "/"}),
            result=raw([1, 2.5, "ü", None]),
            result_shown=raw("[redacted]"),
            error_class="timeout",
            error_detail="after 3 s",
            cost_tokens=12,
            cost_ms=34,
            model="m",
        ),
        StepRecorded(step_no=2, kind=StepKind.SYNTHESIS, fingerprint=""),
        StepRecorded(step_no=3, kind=StepKind.OBSERVATION, fingerprint=""),
        StepRecorded(step_no=4, kind=StepKind.CHECKPOINT, fingerprint=""),
    ),
    "episode.checkpoint_saved@1": (
        CheckpointSaved(
            checkpoint_no=1, step_no=4, phase="gather", state=raw({"n": 1}), schema_version=2
        ),
        CheckpointSaved(checkpoint_no=2, step_no=5, phase="", state=raw(None)),
    ),
    "episode.converged@1": (
        EpisodeConverged(
            classification=raw({"primary": "disk_full"}),
            confidence=1.0,
            summary="full",
            findings=(
                RaiseFinding(
                    finding_key="k1",
                    class_="disk_full",
                    severity=Severity.CRITICAL,
                    confidence=0.9,
                    summary="s",
                    subject_kind="host",
                    subject_id="h",
                    evidence_json=raw({"a": 1}),
                    caused_by_key="k0",
                ),
                RaiseFinding(finding_key="k2"),
                UpdateFinding(
                    finding_key="k3",
                    severity=Severity.LOW,
                    confidence=0.1,
                    summary="s",
                    evidence_json=raw([]),
                ),
                UpdateFinding(finding_key="k4"),
                ClearFinding(finding_key="k5", reason="gone"),
                ClearFinding(finding_key="k6"),
            ),
        ),
        EpisodeConverged(),
    ),
    "episode.finished@1": (
        EpisodeFinished(
            status=EndStatus.PARTIALLY_FAILED,
            turns_used=3,
            tokens_used=99,
            error_class="finding_failed",
            error_detail="why",
            findings=(
                FindingOutcome(finding_key="k1", outcome="raised", raise_no=2),
                FindingOutcome(finding_key="k2", outcome="unchanged"),
            ),
        ),
        EpisodeFinished(status=EndStatus.DONE),
        EpisodeFinished(status=EndStatus.FAILED),
        EpisodeFinished(status=EndStatus.CANCELED),
    ),
    "finding.raised@1": (
        FindingRaised(finding=ACTIVE, cause=CAUSE),
        FindingRaised(finding=BARE, cause=CAUSE),
    ),
    "finding.updated@1": (FindingUpdated(finding=ACTIVE, cause=CAUSE),),
    "finding.cleared@1": (FindingCleared(finding=CLEARED, cause=CAUSE),),
    "finding.expired@1": (FindingExpired(finding=LIMITED, cause=TIMED),),
    "finding.escalated@1": (
        FindingEscalated(finding=LIMITED, cause=TIMED, from_severity=Severity.LOW),
    ),
    "finding.cleared_by_hand@1": (
        FindingClearedByHand(finding=LIMITED, cause=PERSON),
        FindingClearedByHand(finding=BARE, cause=Person(by="ada")),
    ),
    "finding.acknowledged@1": (FindingAcknowledged(finding=ACTIVE, cause=PERSON),),
    "finding.noted@1": (FindingNoted(finding=ACTIVE, cause=PERSON),),
    "lane.moved@1": (
        LaneMoved(
            placed=(TICKET, Ticket(episode_id="e2", expectation_id="limits", number=8)),
            admitted=("e1",),
            shed=("e3",),
            dropped={"e4": "no_room"},
            left=("e5",),
            kept_at=11,
        ),
        LaneMoved(),
    ),
    "lane.kept@1": (
        LaneKept(
            waiting=(Ticket(episode_id="e2", expectation_id="limits", number=8),),
            admitted=(TICKET,),
            newest_number=8,
        ),
        LaneKept(),
    ),
    "signal.waited@1": (
        SignalWaited(
            ref="payment:42",
            actor_id="monitor",
            episode_id="e1",
            step_no=3,
            since=AT,
            signal_id="event.0f",
        ),
        SignalWaited(ref="payment:42", actor_id="monitor", episode_id="e1", step_no=1, since=AT),
    ),
    "signal.given@1": (
        SignalGiven(
            ref="payment:42",
            id="event.0f",
            by="billing",
            at=AT,
            result=raw({"paid": True}),
            episodes=("e1", "e2"),
        ),
        SignalGiven(ref="payment:42", id="event.0f", by="billing", at=AT),
    ),
    "dead.lettered@1": (
        DeadLettered(
            reason="unreadable",
            detail="not JSON",
            stream="vigil-events",
            seq=7,
            subject="vigil.event.a",
            actor_id="monitor",
            headers={"Nats-Msg-Id": "ev-1"},
            payload=b"\x00\xff",
            payload_size_bytes=2,
        ),
        DeadLettered(reason="too_large", detail="", stream="s", seq=1, subject="s.event.a"),
    ),
    "dead.requeued@1": (DeadRequeued(by="ada", episode_id="e2"), DeadRequeued(by="", event_seq=9)),
    "dead.discarded@1": (DeadDiscarded(by="ada", reason="of no use"),),
    "episode.left@1": (EpisodeLeft(node="n1"),),
    "episode.blocked@1": (
        EpisodeBlocked(
            step_no=3, reason=BlockReason.APPROVAL, fingerprint="ab" * 32, approval=APPROVAL
        ),
        EpisodeBlocked(
            step_no=1,
            reason=BlockReason.APPROVAL,
            fingerprint="ab" * 32,
            approval=Approval(plan_hash="cd" * 32),
        ),
        EpisodeBlocked(step_no=3, reason=BlockReason.WAIT, fingerprint="ab" * 32, wait=WAIT),
        EpisodeBlocked(
            step_no=1, reason=BlockReason.WAIT, fingerprint="ab" * 32, wait=Wait(ref="r")
        ),
    ),
    "episode.approval_given@1": (
        EpisodeApprovalGiven(
            step_no=3,
            by="ada",
            reason="why not",
            decision_id="d1",
            blocked=EpisodeBlocked(
                step_no=3, reason=BlockReason.APPROVAL, fingerprint="ab" * 32, approval=GIVEN
            ),
            since=AT,
        ),
    ),
    "output.approval_given@1": (
        OutputApprovalGiven(by="ada", reason="why not", decision_id="d1", approval=GIVEN),
        OutputApprovalGiven(by="ada", approval=GIVEN),
    ),
    "episode.resolved@1": (
        EpisodeResolved(
            step_no=3, resolution=Resolution.APPROVED, by="ada", reason="why not", decision_id="d1"
        ),
        EpisodeResolved(step_no=1, resolution=Resolution.DENIED),
        EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED),
        EpisodeResolved(step_no=1, resolution=Resolution.EXPIRED),
    ),
    "episode.deferred@1": (
        EpisodeDeferred(
            findings=(FindingOutcome(finding_key="k1", outcome="raised", raise_no=2),),
            outputs=(
                OutputOutcome(output_key="mail:1", outcome="failed", error_class="timeout"),
                OutputOutcome(output_key="mail:2", outcome="delivered"),
            ),
            pending=("mail:3", "e1.2"),
        ),
        EpisodeDeferred(),
    ),
    "output.proposed@1": (
        OutputProposed(
            output_key="mail:münchen-1",
            adapter="mail",
            payload=raw({"to": "ada", "tags": [1, None, True]}),
            episode_id="e1",
            actor_id="monitor",
            expectation_id="limits",
            proposal_no=2,
            approval=APPROVAL,
        ),
        OutputProposed(
            output_key="e1.0",
            adapter="pager",
            payload=raw(None),
            episode_id="e1",
            actor_id="monitor",
            expectation_id="limits",
        ),
    ),
    "output.approved@1": (
        OutputApproved(by="ada", reason="why not", decision_id="d1"),
        OutputApproved(by=""),
    ),
    "output.rejected@1": (
        OutputRejected(by="ada", reason="not now", decision_id="d1"),
        OutputRejected(by="", is_expiry=True),
    ),
    "output.attempted@1": (OutputAttempted(attempt=2, node="n1"), OutputAttempted(attempt=1)),
    "output.postponed@1": (
        OutputPostponed(attempt=1, error_class="timeout", error_detail="after 30 s", retry_at=AT),
        OutputPostponed(attempt=1, error_class="timeout", retry_at=AT),
    ),
    "output.delivered@1": (
        OutputDelivered(attempt=3, delivered_ref="m-7"),
        OutputDelivered(attempt=1),
    ),
    "output.failed@1": (
        OutputFailed(attempt=8, error_class="refused", error_detail="no such address"),
        OutputFailed(attempt=1, error_class="refused"),
    ),
    "output.retried@1": (
        OutputRetried(by="ada", reason="fixed", retry_id="r1"),
        OutputRetried(by="ada"),
    ),
    "output.canceled@1": (OutputCanceled(reason="not wanted"), OutputCanceled()),
    "output.forgone@1": (OutputForgone(episode_id="e1"),),
    "order.login_required@1": (
        LoginRequired(by="ada", reason="audit"),
        LoginRequired(by="ada"),
    ),
    "order.login_waived@1": (LoginWaived(by="ada", reason="audit"), LoginWaived(by="ada")),
    "order.retention_declared@1": (
        RetentionDeclared(actor_id="a", kept_s={"done": 86_400}, by="ada", reason="audit"),
        RetentionDeclared(by="ada"),
    ),
    "order.rows_cut@1": (
        RowsCut(
            cuts=(
                RetentionCut(what=RetentionField.DONE, before=AT),
                RetentionCut(what=RetentionField.FINDINGS, actor_id="a", before=AT),
            ),
            by="n1",
            reason="due",
        ),
        RowsCut(cuts=(), by="n1"),
    ),
    "order.hold_added@1": (
        HoldAdded(kind=HoldKind.SUBJECT, held="web 1", by="ada", reason="case 7"),
        HoldAdded(kind=HoldKind.EPISODE, held="e1", by="ada"),
    ),
    "order.hold_removed@1": (
        HoldRemoved(kind=HoldKind.ACTOR, held="a", by="ada", reason="closed"),
        HoldRemoved(kind=HoldKind.EPISODE, held="e1", by="ada"),
    ),
    "order.kinds_encrypted@1": (
        KindsEncrypted(kinds=("client_id", "order.patient"), by="ada", reason="new rules"),
        KindsEncrypted(kinds=(), by="ada"),
    ),
    "order.subject_erased@1": (
        SubjectErased(
            subject="client_id/123",
            key_id="0a1b2c3d4e5f6071",
            key_digest="ab" * 32,
            counts={"episodes": 3, "findings": 1},
            by="ada",
            reason="asked by mail",
        ),
        SubjectErased(subject="client_id/123", key_id="", key_digest="", by="ada"),
    ),
    "person.added@1": (
        PersonAdded(
            name="ann", role=Role.ADMIN, groups=("dba", "oncall"), by="ada", reason="joins"
        ),
        PersonAdded(name="ann", role=Role.VIEWER, by="ada"),
    ),
    "person.removed@1": (
        PersonRemoved(name="ann", by="ada", reason="leaves"),
        PersonRemoved(name="ann", by="ada"),
    ),
    "person.role_set@1": (
        RoleSet(name="ann", role=Role.OPERATOR, by="ada", reason="on call"),
        RoleSet(name="ann", role=Role.APPROVER, by="ada"),
    ),
    "person.groups_set@1": (
        GroupsSet(name="ann", groups=("dba",), by="ada", reason="on call"),
        GroupsSet(name="ann", groups=(), by="ada"),
    ),
    "person.password_set@1": (
        PasswordSet(name="ann", password_hash="$argon2id$x", by="ada", reason="forgotten"),
        PasswordSet(name="ann", password_hash="$argon2id$x", by="ada"),
    ),
    "person.identity_linked@1": (
        IdentityLinked(
            name="ann", issuer="https://id.example", subject="s1", by="ann", reason="first"
        ),
        IdentityLinked(name="ann", issuer="https://id.example", subject="s1", by="ann"),
    ),
    "person.session_begun@1": (SessionBegun(name="ann", session=SIGNED_IN),),
    "person.session_used@1": (SessionUsed(name="ann", session_id="ab" * 8),),
    "person.session_ended@1": (
        SessionEnded(name="ann", session_id="ab" * 8, by="ada", reason="stolen"),
        SessionEnded(name="ann", session_id="ab" * 8, by="ann"),
    ),
    "person.sign_in_refused@1": (
        SignInRefused(name="ann", address="10.0.0.7", agent="Mozilla"),
        SignInRefused(name="ann"),
    ),
    "person.login_kept@1": (
        LoginKept(name="ann", sessions=(SIGNED_IN, LINKED), refused_at=(AT,)),
        LoginKept(name="ann"),
    ),
    "token.issued@1": (
        TokenIssued(
            id="0123456789ab",
            name="ci",
            role=Role.OPERATOR,
            scopes=("events:publish", "read"),
            secret_hash="cd" * 32,
            expires_at=AT,
            is_agent=True,
            owner="ann",
            owner_no=3,
            by="ann",
            reason="deploys",
        ),
        TokenIssued(
            id="0123456789ab",
            name="ci",
            role=Role.VIEWER,
            secret_hash="cd" * 32,
            expires_at=AT,
            by="ann",
        ),
    ),
    "token.revoked@1": (
        TokenRevoked(id="0123456789ab", name="ci", by="ada", reason="leaked"),
        TokenRevoked(id="0123456789ab", name="ci", by="ada"),
    ),
    "link.issued@1": (
        LinkIssued(
            id="0123456789ab",
            name="root",
            role=Role.ADMIN,
            secret_hash="cd" * 32,
            expires_at=AT,
            by="root",
        ),
    ),
    "link.used@1": (
        LinkUsed(id="0123456789ab", name="root", address="10.0.0.7", agent="Mozilla"),
        LinkUsed(id="0123456789ab", name="root"),
    ),
    "person.views_saved@1": (
        ViewsSaved(
            name="ann",
            views=(
                SavedView(name="Broken prices", address="/episodes?actor=prices", is_default=True),
                SavedView(name="Mine", address="/inbox"),
            ),
            owner_no=3,
        ),
        ViewsSaved(name="ann"),
    ),
}

COMMANDS: Final[dict[str, Command]] = {
    "start@1": Start(actor_id="monitor", episode_id="e1"),
    "recover@1": Recover(actor_id="monitor", episode_id="e1", reason="lapsed"),
    "cancel@1": Cancel(actor_id="monitor", episode_id="e1", by="ada", reason="not wanted"),
    "attend@1": Attend(actor_id="monitor", episode_id="e1"),
    "child_ended@1": ChildEnded(actor_id="monitor", episode_id="e1", child_id="e2"),
    "share_decision@1": ShareDecision(actor_id="monitor", episode_id="e1", step_no=3),
    "carry@1": Carry(actor_id="monitor", episode_id="e1"),
    "decide@1": Decide(
        actor_id="monitor",
        episode_id="e1",
        id="d1",
        verdict=Verdict.DENY,
        plan_hash="cd" * 32,
        by="ada",
        reason="not now",
        step_no=3,
        output_key="mail:1",
    ),
    "resolve@1": Resolve(
        actor_id="monitor",
        episode_id="e1",
        id="d1",
        ref="payment:42",
        by="bank",
        result=raw({"paid": True}),
    ),
    "retry_output@1": RetryOutput(
        actor_id="monitor",
        episode_id="e1",
        id="r1",
        output_key="mail:1",
        by="ada",
        reason="fixed",
    ),
    "cancel_output@1": CancelOutput(
        actor_id="monitor",
        episode_id="e1",
        id="c1",
        output_key="mail:1",
        round_no=2,
        by="ada",
        reason="not wanted",
    ),
}
