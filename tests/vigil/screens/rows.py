"""The same rows each time: a stack that watches disks and endpoints, at one moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from engine.archive.floor import Bound, FloorHold
from engine.archive.run import ArchiveReport, PartReport
from engine.cluster.modes import ModeOrder, Orders, PauseOrder
from engine.episodes.recovery import SweepVerdict
from engine.operations.drift import CancelBlocked, Disarm, Outcome, ReconcileStep
from engine.operations.events.why_event import EventVerdict, EventVerdicts
from engine.operations.events.would_rule import WouldVerdict
from engine.operations.lab_verdict import Divergence, LabCost, LabDifference, LabVerdict
from engine.operations.reconcile import Reconciled
from engine.retention.step import StepReport
from engine.retention.worker import RunReport
from projections.postgres.prune import OldRows
from projections.postgres.rebuild.rebuild import (
    RebuildReport,
    RowDifference,
    TableChange,
    VerifyReport,
)
from projections.records import (
    AuditEntry,
    CostSummary,
    DeadLetterRecord,
    DecisionSummary,
    EpisodeRecord,
    FindingCause,
    FindingRecord,
    OrderSummary,
    OutputRecord,
    StepRow,
    TokenSummary,
    WorkflowSummary,
)
from streams.model.modes import NodeMode
from streams.model.people import Role
from streams.model.refusals import AgainstCooldown, AgainstDebounce, AgainstFilter, Refusal
from vigil.asking.archiving import SegmentShown
from vigil.asking.episode_diff import EpisodeCost, EpisodeDiff, StepDifference, ValueDifference
from vigil.asking.refusals import refusal_row
from vigil.asking.repairs.diagnosis import DoctorCheck, look_at_modes
from vigil.asking.repairs.recovery import RecoverReport
from vigil.asking.would import WouldVerdicts
from vigil.client.actors import ActorSummary, ExpectationSummary
from vigil.client.stack.nodes import ActorPause, NodeSummary
from vigil.client.stack.people import PersonRecord, SessionRecord
from vigil.client.stack.projections import ProjectionStatus, ProjectionsView, RebuildLeft
from vigil.client.stack.retention import KeptTime, RetentionHold, RetentionOutcome, RetentionView
from vigil.commands.serving import mcp

NOW: Final = datetime(2026, 11, 23, 17, 4, 30, tzinfo=UTC)
Rows = list[dict[str, Any]]

WEB: Final = UUID("3f2a9c1e-88b0-4d7e-9a51-0c6d2f4b7e11")
WEB_AGAIN: Final = UUID("3f2a9c1e-1c44-4b02-8f00-5d1a7b9e2c33")
DISK: Final = UUID("a81c07d2-5e19-4f6b-b2c3-91d04e7f8a22")
FORK: Final = UUID("c5d9e0f1-2b3a-4c8d-9e7f-10a2b3c4d5e6")
SLEEPER: Final = UUID("0b7e6d5c-4a39-4281-b706-f5e4d3c2b1a0")
SINCE_DEPLOY: Final = UUID("5d4c3b2a-1f0e-4d9c-8b7a-695847362514")
CHILD: Final = UUID("b2c3d4e5-60f1-4a2b-8c3d-4e5f60718293")
WAITER: Final = UUID("47586970-8192-4a3b-8c4d-5e6f708192a3")
CRASHED: Final = UUID("ce0fd1a2-b3c4-4d5e-8f60-718293a4b5c6")
DRAINED: Final = UUID("1a2b3c4d-5e6f-4708-8192-a3b4c5d6e7f8")
UPGRADED: Final = UUID("2b3c4d5e-6f70-4819-82a3-b4c5d6e7f809")
LOST: Final = UUID("d0c1b2a3-7f6e-4d5c-8b4a-39281706f5e4")
UNANSWERED: Final = UUID("94a5b6c7-d8e9-4fa0-91b2-c3d4e5f60718")
LEFT_OVER: Final = UUID("6e7f8091-a2b3-4c4d-95e6-f708192a3b4c")
ROLLOUT: Final = UUID("77e1d2c3-b4a5-4968-8778-695a4b3c2d1e")


EVENTS: Final = {WEB_AGAIN: "e-0", FORK: "e-0", SLEEPER: "e-9", SINCE_DEPLOY: "e-5"}
"""Episode → the id of the event that opened it; of the others `e-1`."""


def before(**ago: float) -> datetime:
    """Return a time before now."""
    return NOW - timedelta(**ago)


def after(**ahead: float) -> datetime:
    """Return a time after now."""
    return NOW + timedelta(**ahead)


def made(type_: type[msgspec.Struct], **said: object) -> dict[str, Any]:
    """Return a row of the columns of a record, each None unless it is said."""
    fields = {each.name: None for each in msgspec.structs.fields(type_)}
    row: dict[str, Any] = msgspec.to_builtins(
        type_(**{**fields, "journal_seq": 1, **said} if "journal_seq" in fields else fields | said),
        builtin_types=(datetime, UUID, Decimal),
    )
    return row


def episode(id_: UUID, status: str, **said: object) -> dict[str, Any]:
    """Return the row of an episode."""
    usual: dict[str, object] = {
        "actor_id": "watcher",
        "expectation_id": "endpoint_is_healthy",
        "mode": "live",
        "subject_kind": "host",
        "attempts": 1,
        "takeovers": 0,
        "turns_used": 0,
        "tokens_used": 0,
        "cost_usd": Decimal(0),
        "wall_used_ms": 0,
        "generation": 0,
        "trigger_type": "event",
        "trigger_ref": {"event_id": EVENTS.get(id_, "e-1"), "event_type": "endpoint.probed"},
        "dedupe_key": str(id_),
        "budget": {"turns": 20},
        "log_strategy": "full_debug",
        "priority": 0,
        "is_request": False,
    }
    return made(EpisodeRecord, **{**usual, "episode_id": id_, "status": status, **said})


EPISODES: Final[Rows] = [
    episode(
        UUID("e1f2a3b4-0000-4000-8000-000000000001"), "queued",
        subject_id="web-7", queued_at=before(seconds=12), position=3,
    ),
    episode(
        WEB, "blocked", subject_id="web-3", queued_at=before(minutes=3, seconds=20),
        started_at=before(minutes=3, seconds=19), turns_used=4, blocked_by="approval",
        wall_used_ms=4_210, node="vm-1", budget={"turns": 20, "usd": "0.50"},
        cost_usd=Decimal("0.000402"), agent="triage:5c1f09aa",
    ),
    episode(
        SLEEPER, "blocked", subject_id="web-5", queued_at=before(minutes=9),
        started_at=before(minutes=9), turns_used=10, blocked_by="wait", wall_used_ms=310,
        blocked_until=after(hours=1),
    ),
    episode(
        WEB_AGAIN, "failed", subject_id="web-1", queued_at=before(hours=2, minutes=7),
        started_at=before(hours=2, minutes=7), finished_at=before(hours=2, minutes=6),
        turns_used=3, error_class="tool_unavailable", wall_used_ms=31_400, attempts=2, takeovers=1,
        error_detail="HTTPStatusError: Server error '503 Service Unavailable' for url "
        "'http://127.0.0.1:18080/health/web-1'\nFor more information check: "
        "https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/503",
    ),
    episode(
        FORK, "done", subject_id="web-1", queued_at=before(hours=2), mode="dry_run",
        started_at=before(hours=2), finished_at=before(hours=2), turns_used=5,
        forked_from=WEB_AGAIN, forked_at_step=2, forked_by="ann",
        forked_reason="the probe is mended",
        trigger_type="fork", summary="web-1 answers again: 200 after 81 ms", wall_used_ms=1_900,
    ),
    episode(
        DISK, "done", subject_id="db-1", subject_kind="disk", actor_id="capacity",
        expectation_id="disk_has_room", queued_at=before(days=4), started_at=before(days=4),
        finished_at=before(days=4), turns_used=2, tokens_used=1_204, model="small-1",
        cost_usd=Decimal("0.0421"),
        summary="the disk of db-1 is 97% full, and grows by 2 GB each day", wall_used_ms=840,
        trigger_type="schedule", confidence=0.9, priority=5,
    ),
]  # fmt: skip

STEPS: Final[Rows] = [
    made(
        StepRow, episode_id=WEB, step_no=1, kind="tool_call", state="recorded",
        tool_name="endpoint.fetch", created_at=before(minutes=3, seconds=19), cost_ms=182,
        args_redacted={"host": "web-3", "path": "/health"}, result={"status": 503},
    ),
    made(
        StepRow, episode_id=WEB, step_no=2, kind="tool_call", state="failed",
        tool_name="certificate.read", created_at=before(minutes=3, seconds=18), cost_ms=2_004,
        args_redacted={"host": "web-3"}, error_class="timed_out",
        error_detail="no answer within 2 s\n(watch.py:40, in read)",
    ),
    made(
        StepRow, episode_id=WEB, step_no=3, kind="observation", state="recorded",
        created_at=before(minutes=3, seconds=15), result={"now": "2026-11-23T17:01:15Z"},
    ),
    made(
        StepRow, episode_id=WEB, step_no=4, kind="tool_call", state="recorded",
        tool_name="disk.dump", created_at=before(minutes=3, seconds=14), cost_ms=1_910,
        cost_tokens=210, result_size_bytes=5_242_880,
    ),
    made(
        StepRow, episode_id=WEB, step_no=5, kind="model_request", state="recorded",
        created_at=before(minutes=3, seconds=11), cost_ms=2_730, cost_tokens=1_480,
        input_tokens=1_330, output_tokens=150, cached_tokens=1_024,
        model="openai:gpt-5-mini", agent="triage:5c1f09aa", cost_usd=Decimal("0.000402"),
    ),
]  # fmt: skip
EVERY_STEP: Final[Rows] = [
    made(
        StepRow, episode_id=SLEEPER, step_no=number, state="recorded", tool_name=tool, kind=kind,
        args_redacted=args, result=result, created_at=before(seconds=540 - number),
        cost_ms=12, cost_tokens=0,
    )
    for number, (kind, tool, args, result) in enumerate(
        [
            ("observation", "now", None, "2026-11-23T16:55:31Z"),
            ("tool_call", "endpoint.fetch", {"host": "web-5"}, {"status": 503}),
            ("synthesis", None, {"question": "why?"}, {"text": "its disk is full"}),
            ("checkpoint", None, {"phase": "diagnosed"}, None),
            ("report", None, {"raise": 1, "clear": 2}, None),
            ("episode", "capacity.disk_has_room", {"payload": {}}, {"status": "done"}),
            ("approval", None, {"restart": "web-5"}, {"resolution": "approved", "by": "ann"}),
            ("output", "output.pager", {"adapter": "pager"}, {"status": "delivered"}),
            ("wait", None, {"ref": "restart:web-5"}, {"ok": True}),
            ("wait", None, {"until": None, "seconds": 30.0}, None),
        ],
        start=1,
    )
]  # fmt: skip

FINDING: Final = made(
    FindingRecord, finding_key="endpoint:web-3", raise_no=1, status="active", severity="critical",
    class_="endpoint_down", confidence=1.0, summary="web-3 does not answer since 17:01",
    subject_kind="host", subject_id="web-3", actor_id="watcher",
    expectation_id="endpoint_is_healthy", raised_by_episode_id=WEB, raised_at=before(minutes=3),
    updated_at=before(minutes=1), expires_at=after(minutes=57), acknowledged_by="ann",
    acknowledged_at=before(minutes=1), history=[],
)  # fmt: skip
CHANGES: Final[Rows] = [
    {
        "event_no": 0, "kind": "finding_acknowledged", "raise_no": 1, "at": before(minutes=1),
        "episode_id": None, "severity": "critical", "summary": FINDING["summary"],
        "person": "ann", "reason": "on it", "finding_key": FINDING["finding_key"],
    },
    {
        "event_no": 0, "kind": "finding_raised", "raise_no": 1, "at": before(minutes=3),
        "episode_id": WEB, "severity": "critical", "summary": FINDING["summary"],
        "person": None, "reason": None, "finding_key": FINDING["finding_key"],
    },
]  # fmt: skip
FINDINGS: Final[Rows] = [
    FINDING,
    made(
        FindingRecord, finding_key="disk:db-1", raise_no=2, status="active", severity="high",
        class_="disk_nearly_full", confidence=0.9, subject_kind="disk", subject_id="db-1",
        summary="the disk of db-1 is 97% full, and grows by 2 GB each day", actor_id="capacity",
        expectation_id="disk_has_room", raised_by_episode_id=DISK, raised_at=before(days=4),
        updated_at=before(hours=1), history=[], caused_by_key="backup:db-1",
    ),
]  # fmt: skip
CHAIN: Final[Rows] = [
    made(
        FindingCause, depth=0, stack="vigil", finding_key="disk:db-1", raise_no=2, status="active",
        class_="disk_nearly_full", severity="high", summary="the disk of db-1 is 97% full",
        caused_by_key="backup:db-1",
    ),
    made(
        FindingCause, depth=1, stack="vigil", finding_key="backup:db-1", raise_no=1,
        status="active", class_="backup_stuck", severity="medium",
        summary="yesterday's backup of db-1 was never moved away",
    ),
]  # fmt: skip

PAGE: Final = made(
    OutputRecord, output_key="page:web-3", status="proposed", adapter="pager", actor_id="watcher",
    expectation_id="endpoint_is_healthy", episode_id=WEB, summary="page whoever is on call",
    attempts=2, next_attempt_at=after(seconds=25), error_class="receiver_unavailable",
    error_detail="127.0.0.1:9: All connection attempts failed", created_at=before(minutes=3),
    updated_at=before(seconds=5), proposal_no=1, payload={"host": "web-3", "level": "page"},
    approvers=[], history=[],
)  # fmt: skip
ATTEMPTS: Final[Rows] = [
    {
        "at": before(seconds=5), "kind": "output_attempted", "proposal_no": 1, "attempt": 2,
        "node": "vm-1", "error_class": "receiver_unavailable",
        "error_detail": "127.0.0.1:9: All connection attempts failed",
        "next_attempt_at": after(seconds=25), "person": None, "reason": None,
    },
    {
        "at": before(minutes=3), "kind": "output_proposed", "proposal_no": 1, "attempt": None,
        "node": None, "error_class": None, "error_detail": None, "next_attempt_at": None,
        "person": None, "reason": None,
    },
]  # fmt: skip
OUTPUTS: Final[Rows] = [
    PAGE,
    made(
        OutputRecord, output_key="ticket:db-1", status="delivered", adapter="tickets",
        actor_id="capacity", expectation_id="disk_has_room", episode_id=DISK,
        summary="make room on db-1", attempts=1, delivered_ref="OPS-4711",
        created_at=before(days=4), updated_at=before(days=4), delivered_at=before(days=4),
        proposal_no=1, approvers=[], history=[],
    ),
]  # fmt: skip

BLOCK: Final[dict[str, Any]] = {
    "episode_id": WEB, "reason": "approval", "ref": None, "summary": "restart web-3",
    "approvers": ["ann", "bob"], "plan_hash": "b57e6013" * 8, "plan": {"restart": "web-3"},
    "blocked_at": before(minutes=3), "expires_at": after(minutes=7), "on_expiry": "deny",
}  # fmt: skip
CHILDREN: Final[Rows] = [
    {
        "level": 1, "parent_call": "3", "episode_id": CHILD, "actor_id": "capacity",
        "expectation_id": "disk_has_room", "status": "done", "turns_used": 2, "tokens_used": 1_204,
        "summary": "the disk of web-3 has room", "error_class": None,
    },
]  # fmt: skip
SHOWN: Final = EPISODES[1] | {
    "waits_for": BLOCK,
    "findings": CHANGES[1:],
    "outputs": [PAGE | {"outcome": None}],
    "children": CHILDREN,
}
ASLEEP: Final = EPISODES[2] | {
    "waits_for": BLOCK
    | {"reason": "wait", "ref": "", "blocked_at": before(minutes=9), "expires_at": after(hours=1)},
    "findings": [],
    "outputs": [],
    "children": [],
}

PARKED: Final = EPISODES[1] | {
    "episode_id": SINCE_DEPLOY,
    "subject_id": "web-2",
    "trigger_ref": {"event_id": EVENTS[SINCE_DEPLOY], "event_type": "endpoint.probed"},
    "blocked_by": "nondeterministic_replay",
    "waits_for": BLOCK
    | {
        "episode_id": SINCE_DEPLOY, "reason": "nondeterministic_replay",
        "expires_at": after(days=7), "on_expiry": "fail",
        "summary": "call 1 was approval; the replay asks for approval with other values",
    },
    "findings": [],
    "outputs": [],
    "children": [],
}  # fmt: skip
APPROVED: Final[Rows] = [EVERY_STEP[6] | {"step_no": 1}]

INSTANCES: Final[Rows] = [
    made(
        WorkflowSummary, instance_id=ROLLOUT, workflow_id="rollout", status="blocked", mode="live",
        subject_value="web-3", items=5, done=2, running=1, waiting=1, started_at=before(hours=1),
        updated_at=before(minutes=2),
    ),
    made(
        WorkflowSummary, instance_id=UUID("12e1d2c3-b4a5-4968-8778-695a4b3c2d1e"),
        workflow_id="onboard", status="failed", mode="dry_run", subject_value="acme", items=3,
        done=1, running=0, waiting=0, started_at=before(days=2), updated_at=before(days=2),
        finished_at=before(days=2), error_class="tool_unavailable",
        error_detail="the registry does not answer", failed_step="register",
    ),
]  # fmt: skip
INSTANCE: Final[dict[str, Any]] = {
    "instance_id": str(ROLLOUT), "workflow_id": "rollout", "status": "blocked", "mode": "live",
    "subject": "web-3", "held_by": None, "started_at": before(hours=1),
    "updated_at": before(minutes=2), "error_class": None, "error_detail": None,
    "failed_step": None, "canceled_by": None, "not_undone": None, "parent_instance_id": None,
    "budget_usd": Decimal("5.00"), "spent_usd": Decimal("1.25"), "kept_usd": Decimal("0.50"),
}  # fmt: skip
INSTANCE_STEPS: Final[Rows] = [
    {
        "depth": 0, "step_id": "drain", "status": "done", "runs": "ops.drain", "depends_on": None,
        "attempts": 1, "episode_id": str(DRAINED), "error_class": None, "error_detail": None,
        "retry_at": None, "budget_usd": Decimal("0.50"),
    },
    {
        "depth": 1, "step_id": "upgrade[0]", "status": "retrying", "runs": "ops.upgrade",
        "depends_on": "drain", "attempts": 2, "episode_id": str(UPGRADED),
        "error_class": "tool_unavailable", "error_detail": "the mirror does not answer",
        "retry_at": after(seconds=40), "budget_usd": Decimal("0.50"),
    },
    {
        "depth": 2, "step_id": "verify", "status": "awaiting_approval", "runs": "ops.verify",
        "depends_on": "upgrade", "attempts": 0, "episode_id": None, "error_class": None,
        "error_detail": None, "retry_at": None, "budget_usd": None,
    },
]  # fmt: skip
DEFINED: Final[Rows] = [
    {
        "workflow_id": "rollout", "source": "definition", "revision": 3, "revisions": {"vm-1": 3},
        "triggers": ["event release.made"], "steps": ["drain", "upgrade", "verify"],
        "nodes": ["vm-1"], "problems": {"vm-2": "it has no tool 'upgrade.run'"},
    },
]  # fmt: skip

ACTORS: Final[Rows] = [
    made(
        ActorSummary, actor_id="capacity", domain="storage", source="definition", revision=2,
        revisions={"vm-1": 2}, problems={}, nodes=["vm-1"], waking=["vm-1"], running_on=["vm-1"],
        slots=4, limits={}, paused="maintenance", expectations=["disk_has_room"],
        queued=0, running=0, blocked=0, events=14, due=0, commands=0,
    ),
    made(
        ActorSummary, actor_id="watcher", domain="web", source="code", revisions={}, problems={},
        nodes=["vm-1", "vm-2"], waking=["vm-1"], running_on=["vm-1"], slots=8, limits={},
        paused="", expectations=["endpoint_is_healthy", "certificate_is_fresh"], queued=1,
        running=0, blocked=2, events=0, due=1, commands=2,
    ),
]  # fmt: skip
EXPECTATIONS: Final[Rows] = [
    made(
        ExpectationSummary, expectation="endpoint_is_healthy",
        triggers=["event endpoint.probed", "every 60s"],
        next_ticks={"every 60s": after(seconds=30)}, breaker="closed", cooling_down=1,
        waiting_for_calm=0, options={},
    ),
]  # fmt: skip
COOLDOWN: Final = Refusal(
    event_id="e-4", event="endpoint.probed", actor="watcher", expectation="endpoint_is_healthy",
    subject="web-5", at=before(minutes=2), node="vm-1", reason="cooldown",
    against=AgainstCooldown(episode_id=str(SLEEPER), until=after(minutes=8)),
)  # fmt: skip
REFUSALS: Final[Rows] = [refusal_row(COOLDOWN)]

NODES: Final[Rows] = [
    made(
        NodeSummary, node="vm-1", state="up", mode="full", said="own setting", host="vm-1.local",
        version="0.1.0", since=before(days=1),
    ),
    made(
        NodeSummary, node="vm-2", state="up", mode="trigger_only", said="order",
        actors={"capacity": "disabled"}, by="ann", reason="it is slow", at=before(hours=3),
        host="vm-2.local", version="0.1.0", since=before(days=1),
    ),
]  # fmt: skip
PAUSES: Final[Rows] = [
    made(
        ActorPause, actor_id="capacity", paused_by="ann", paused_at=before(hours=1),
        reason="maintenance",
    )
]  # fmt: skip
ORDERS: Final[Rows] = [
    made(
        OrderSummary, order_key="actor.capacity", change="actor_paused", actor_id="capacity",
        at=before(hours=1), person="ann", reason="maintenance",
    ),
    made(
        OrderSummary, order_key="node.vm-2", change="node_mode_set", node="vm-2",
        mode="trigger_only", at=before(hours=3), person="ann", reason="it is slow",
    ),
]  # fmt: skip
DECISIONS: Final[Rows] = [
    made(
        DecisionSummary, kind="episode", id="0199f2c1-7d3a-7c55-9a41-0d8f6f1f9e10",
        actor_id="release_manager", expectation_id="release_is_approved", subject_id="2.7",
        summary="put 2.7 into production on web-1, web-2 and web-3", decision="approved",
        person="ann, bob.builder@example.com", reason="tests are green", at=before(minutes=20),
        is_changed=True,
    ),
    made(
        DecisionSummary, kind="output", id="mail:invoice-17", actor_id="billing",
        expectation_id="invoices_are_paid", subject_id="ann", decision="approval_given",
        person="cid", at=before(hours=3), is_changed=False,
    ),
    made(
        DecisionSummary, kind="step", id="0199f2c1-7d3a-7c55-9a41-0d8f6f1f9e11", step_id="deploy",
        actor_id="review", expectation_id="deploy", subject_id="o-2", summary="deploy to all",
        decision="denied", person="ann", reason="not on a Friday", at=before(days=2),
        is_changed=False,
    ),
]  # fmt: skip
PEOPLE: Final[Rows] = [
    made(
        PersonRecord, name="ann", role=Role.ADMIN, groups=("dba", "oncall"), has_password=True,
        issuer=None, added_at=before(days=90), added_by="root",
    ),
    made(
        PersonRecord, name="bob.builder@example.com", role=Role.APPROVER, groups=("oncall",),
        has_password=False, issuer="https://id.example.com", added_at=before(days=3),
        added_by="oidc",
    ),
]  # fmt: skip
SESSIONS: Final[Rows] = [
    made(
        SessionRecord, session_id="8d3e5a7c90b1f264", way="password", begun_at=before(hours=3),
        used_at=before(minutes=12), expires_at=after(days=6), address="10.20.0.7",
        agent="Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    )
]  # fmt: skip
AUDIT: Final[Rows] = [
    made(
        AuditEntry, person_key="login.ann", change="session_begun", name="ann", person="ann",
        at=before(hours=3), address="10.20.0.7", way="password", session_id="8d3e5a7c90b1f264",
    ),
    made(
        AuditEntry, person_key="login.ann", change="sign_in_refused", name="ann", person="ann",
        at=before(hours=3), address="10.20.0.7",
    ),
    made(
        AuditEntry, person_key="people", change="role_set", name="ann", person="root",
        at=before(days=30), role="admin", reason="is on call",
    ),
]  # fmt: skip
TOKENS: Final[Rows] = [
    made(
        TokenSummary, token_id="4be1029c77da", name="ci", role="operator",
        scopes=["events:publish", "read"], owner="ann", issued_at=before(days=2),
        issued_by="ann", issued_reason="deploys", expires_at=after(days=88),
    ),
    made(
        TokenSummary, token_id="90aa3c5e1b02", name="assistant", role="viewer", is_agent=True,
        issued_at=before(days=80), issued_by="root", expires_at=after(days=10),
        revoked_at=before(days=1), revoked_by="ann", revoked_reason="leaked",
    ),
]  # fmt: skip

LETTER: Final = made(
    DeadLetterRecord, letter_key=f"episode.{CRASHED}", status="waiting",
    reason="attempts_exhausted", detail="3 crashes in a row: MemoryError (watch.py:71, in probe)",
    actor_id="watcher", episode_id=CRASHED, source_stream="vigil-journal", source_seq=4_711,
    source_subject=f"vigil.episode.{CRASHED}", payload_size_bytes=14, headers={},
    payload=b'{"host":"web"}', lettered_at=before(hours=2),
) | {
    "what_to_do": f"vigil dead requeue episode.{CRASHED}",
    "payload": '{"host":"web"}',
}  # fmt: skip


def waiting(kind: str, id_: str, summary: str, what_to_do: str, **said: object) -> dict[str, Any]:
    """Return what waits for a person."""
    usual: dict[str, object] = {
        "actor_id": "watcher", "expectation_id": "endpoint_is_healthy", "subject_kind": None,
        "subject_id": None, "approvers": [], "editable": False, "episodes": None,
        "since": before(minutes=2), "expires_at": None,
    }  # fmt: skip
    about = {"kind": kind, "id": id_, "summary": summary, "what_to_do": what_to_do}
    return {**usual, **about, **said}


INBOX: Final[Rows] = [
    {
        "kind": "approval", "id": str(WEB), "actor_id": "watcher",
        "expectation_id": "endpoint_is_healthy", "summary": "restart web-3",
        "since": before(minutes=3), "expires_at": after(minutes=7), "episodes": 1,
        "what_to_do": f"vigil episodes approve {WEB}", "subject_kind": "host",
        "subject_id": "web-3", "approvers": ["ann", "bob"], "editable": True,
    },
    waiting(
        "workflow_step", str(ROLLOUT), "verify: does web-3 look well?",
        f"vigil workflows approve {ROLLOUT} verify", actor_id="workflow-rollout",
        expectation_id="verify", subject_id="web-3", approvers=["ann"], editable=True,
    ),
    waiting(
        "workflow_step", str(ROLLOUT), "step upgrade has failed: tool_unavailable",
        f"vigil workflows resume {ROLLOUT} upgrade --retry", actor_id="workflow-rollout",
        expectation_id="upgrade", subject_id="web-3",
    ),
    waiting(
        "output", "mail:db-1", "tell the owner of db-1", "vigil outputs approve mail:db-1",
        actor_id="capacity", expectation_id="disk_has_room", subject_kind="disk",
        subject_id="db-1", editable=True,
    ),
    waiting(
        "wait", str(WAITER), "waits for restart:web-6", "vigil episodes resolve restart:web-6",
        subject_kind="host", subject_id="web-6",
    ),
    waiting(
        "nondeterministic_replay", str(SINCE_DEPLOY),
        PARKED["waits_for"]["summary"],
        f"vigil episodes show {SINCE_DEPLOY}", subject_kind="host", subject_id="web-2",
    ),
    waiting(
        "dead_letter", f"episode.{CRASHED}", "attempts_exhausted: 3 crashes in a row",
        f"vigil dead show episode.{CRASHED}",
    ),
]  # fmt: skip

ELSEWHERE: Final = Refusal(
    event_id="e-1", event="endpoint.probed", actor="capacity", expectation="disk_has_room",
    subject="web-3", at=before(minutes=3, seconds=21), node="vm-1", reason="filter",
    against=AgainstFilter(path="mount", wanted="/", found="/var"),
)  # fmt: skip
NOT_CALM: Final = Refusal(
    event_id="e-1", event="endpoint.probed", actor="watcher", expectation="certificate_is_fresh",
    subject="web-3", at=before(minutes=3, seconds=21), node="vm-1", reason="waits_for_calm",
    against=AgainstDebounce(debounce_s=60.0),
)  # fmt: skip
BECAME: Final = EventVerdicts(
    name="endpoint.probed",
    at=before(minutes=3, seconds=21),
    verdicts=[
        EventVerdict(
            actor="capacity", expectation="disk_has_room", outcome="refused",
            refusal=ELSEWHERE, why=ELSEWHERE.why,
        ),
        EventVerdict(
            actor="watcher", expectation="certificate_is_fresh", outcome="waits",
            refusal=NOT_CALM, why=NOT_CALM.why,
        ),
        EventVerdict(
            actor="watcher", expectation="endpoint_is_healthy", outcome="opened",
            episode_id=str(WEB), why=f"it opened episode {WEB}",
        ),
    ],
)  # fmt: skip
WOULD: Final = WouldVerdicts(
    id="e-2",
    verdicts=[
        WouldVerdict(
            actor="capacity", expectation="disk_has_room", outcome="refused",
            refusal=ELSEWHERE, why=ELSEWHERE.why,
        ),
        WouldVerdict(
            actor="watcher", expectation="endpoint_is_healthy", outcome="fires",
            why="it would open an episode",
        ),
        WouldVerdict(
            actor="writer", expectation="page_is_known", outcome="waits",
            why="it would open an episode, but it is paused (by ann)",
        ),
    ],
)  # fmt: skip
COUNTED: Final[Rows] = [
    {
        "actor_id": "watcher", "expectation_id": "endpoint_is_healthy", "ruling": ruling,
        "events": events,
    }
    for ruling, events in (("fire", 12), ("cooldown", 4_711))
]  # fmt: skip
WOULD_FIRE: Final[Rows] = [
    {
        "at": before(seconds=ago_s), "event_id": event_id, "event": "endpoint.probed",
        "expectation_id": "endpoint_is_healthy", "subject_id": subject, "ruling": "fire",
        "episode_id": str(id_), "compared_with": None,
    }
    for ago_s, event_id, subject, id_ in (
        (541, "e-9", "web-5", SLEEPER),
        (201, "e-1", "web-3", WEB),
    )
]  # fmt: skip

VERSIONS: Final = {"vigil": "0.1.0", "python": "3.11.7", "nats-py": "2.9.0"}
SETTINGS: Final[Rows] = [
    {"setting": "nats_url", "value": "nats://127.0.0.1:4222", "from": "default"},
    {"setting": "postgres_dsn", "value": "postgresql://vigil:***@db/vigil", "from": "vigil.toml"},
    {"setting": "stack", "value": "vigil", "from": "VIGIL_STACK"},
]
CHECKS: Final = [
    DoctorCheck("NATS at nats://127.0.0.1:4222", "ok", "nats-server 2.12.1, with JetStream"),
    *look_at_modes(
        Orders(
            modes={
                "vm-2": ModeOrder(
                    mode=NodeMode.TRIGGER_ONLY, actors={"capacity": NodeMode.DISABLED}, by="ann",
                    at=before(hours=3), reason="it is slow",
                )
            },
            pauses={"capacity": PauseOrder(by="ann", at=before(hours=1), reason="maintenance")},
        )
    ),
    DoctorCheck(
        "projection journal", "problem", "14,711 messages behind, at 12,003 of 26,714",
        "See that a projector runs: `vigil project`, or a node without --no-project.",
    ),
]  # fmt: skip

FRAMES: Final[Rows] = [
    {
        "number": number, "at": before(minutes=3) + timedelta(seconds=number), "event": event,
        "call": call, "status": status, "steps_recorded": steps, "node": node, "attempts": attempts,
        "crashes": 0, "checkpoints_saved": 0, "tokens_used": 0, "wall_used_s": 0.25 * number,
        "seq": 4_710 + number,
    }
    for number, (event, call, status, steps, node, attempts) in enumerate(
        [
            ("episode.opened@1", "", "queued", 0, "", 0),
            ("episode.started@1", "", "running", 0, "vm-1", 1),
            ("episode.step_recorded@1", "1 endpoint.fetch", "running", 1, "vm-1", 1),
            ("episode.step_recorded@1", "2 certificate.read", "running", 2, "vm-1", 1),
            ("episode.step_recorded@1", "3 observation", "running", 3, "vm-1", 1),
            ("episode.step_recorded@1", "4 disk.dump", "running", 4, "vm-1", 1),
            ("episode.blocked@1", "5 approval", "blocked", 4, "vm-1", 1),
        ],
        start=1,
    )
]  # fmt: skip

REVISIONS: Final[Rows] = [
    {
        "at": before(days=3), "change": "applied", "revision": 1, "person": "ann", "reason": "",
        "difference": [],
    },
    {
        "at": before(days=1), "change": "disabled", "revision": 1, "person": "bob",
        "reason": "it pages at night", "difference": [],
    },
]  # fmt: skip

PLACES: Final[Rows] = [
    {
        "actor": "watcher", "expectation": "endpoint_is_healthy", "place": "watch.py:40",
        "found": "datetime.now()", "instead": "ctx.now()",
    },
    {
        "actor": "watcher", "expectation": "endpoint_is_healthy", "place": "watch.py:71",
        "found": "there is no tool endpoint.fetsh", "instead": "endpoint.fetch",
    },
]  # fmt: skip

PINS: Final[Rows] = [
    {
        "server": "github", "tool": tool, "state": state, "risk": risk,
        "line": f'"{tool}": McpTool("{risk or mcp.NO_RISK}", pin="{pin * 8}"),',
    }
    for tool, state, risk, pin in [
        ("search_issues", "as pinned", "read", "6ee1"),
        ("create_issue", "changed", "change", "0c4a"),
        ("delete_repository", "not allowed", None, "71bd"),
    ]
]  # fmt: skip

FORGOTTEN: Final = RecoverReport(
    counts={each: int(each in ("recovered", "held")) for each in SweepVerdict},
    episodes=[
        {
            "episode_id": str(LOST), "actor_id": "watcher", "status": "running",
            "latest_at": before(hours=2), "verdict": "recovered",
        },
        {
            "episode_id": str(UNANSWERED), "actor_id": "capacity", "status": "running",
            "latest_at": before(hours=1), "verdict": "held",
        },
    ],
    instances=[],
    unserved=[],
)  # fmt: skip
RECONCILED: Final = Reconciled(
    steps=[
        ReconcileStep(action=each, outcome=Outcome.PLANNED)
        for each in (
            Disarm(
                actor_id="capacity", expectation_id="disk_has_room", purpose="tick",
                key="disk_has_room/every 2592000s",
            ),
            CancelBlocked(
                actor_id="watcher", expectation_id="certificate_is_fresh", episode_id=str(LEFT_OVER)
            ),
        )
    ],
    nodes=["vm-1", "vm-2"],
    compared=["capacity", "watcher"],
    skipped={},
)  # fmt: skip
DRIFTS: Final[Rows] = [
    {"order_key": "node.vm-2", "problem": "nodes see no mode, and trigger_only was ordered"},
]
PROJECTIONS: Final = ProjectionsView(
    projections=[
        ProjectionStatus(
            own="", projection="journal", position=12_003, head=26_714, lag=14_711, trouble=None,
            updated_at=before(minutes=3),
        ),
        ProjectionStatus(
            own="", projection="claims", position=881, head=None, lag=None, trouble=None,
            updated_at=before(minutes=3),
        ),
        ProjectionStatus(
            own="ends", projection="journal", position=26_000, head=26_714, lag=714, trouble=None,
            updated_at=before(minutes=3),
        ),
    ],
    rebuilds=[
        RebuildLeft(
            schema="vigil_replaced_0f2c9a77d1e45b60_20261123160430000000", state="replaced",
            began_at=before(hours=2), replaced_at=before(hours=1), drop_at=before(hours=-23),
        ),
    ],
)  # fmt: skip
VERIFIED: Final = VerifyReport(
    stack="vigil",
    events=1_204_331,
    took_s=58.2,
    positions={"journal": 401_223},
    difference=RowDifference(
        table="findings",
        key={"finding_key": "host:disk:web-1", "raise_no": 1},
        column="summary",
        live="the disk is empty",
        journal="the disk is full",
        seq=9_120,
    ),
    changes=[TableChange(table="findings", missing=0, needless=1, wrong=12)],
)
REBUILT: Final = RebuildReport(
    stack="vigil",
    changes=VERIFIED.changes,
    events=1_204_331,
    took_s=61.9,
    is_resumed=False,
    is_dry=False,
    positions={"journal": 401_223},
    replaced_in="vigil_replaced_0f2c9a77d1e45b60_20261123160430000000",
    drop_at=before(hours=-23),
)
OLD_ROWS: Final = [
    OldRows(
        kind="episodes", actor_id="watcher", state="done", before=before(days=30), count=1_204,
        stay={"subject web-1": 3, "an active finding": 1}, since=before(days=31),
    ),
    OldRows(
        kind="dead_letters", actor_id="", state="", before=before(days=30), count=2,
        since=before(days=33),
    ),
]  # fmt: skip
KEPT_STACK: Final = RetentionView(
    kept=[
        KeptTime(what="done", actor_id=None, kept_s=30 * 86_400),
        KeptTime(what="failed", actor_id=None, kept_s=120 * 86_400),
        KeptTime(what="done", actor_id="audit", kept_s=3_650 * 86_400),
    ],
    holds=[
        RetentionHold(kind="subject", held="web-1", since=before(days=2), by="ann", reason="case 7")
    ],
    cuts=[],
    old=OLD_ROWS,
    last=RunReport(at=before(minutes=12), by="vm-1", took_s=0.2, steps=[]),
)
RETENTION_RUN: Final = RetentionOutcome(
    is_dry=True,
    steps=[StepReport(step="rows", says="done of all before 2029-12-02 00:00")],
    old=OLD_ROWS,
    deleted={},
)
ANSWER: Final[Rows] = [
    {"actor_id": "capacity", "count": 2, "latest": before(hours=1)},
    {"actor_id": "watcher", "count": 17, "latest": before(minutes=3)},
]


def cost(id_: UUID, **said: Any) -> EpisodeCost:
    usual = {"actor_id": "watcher", "expectation_id": "endpoint_is_healthy", "mode": "live"}
    return EpisodeCost(episode_id=str(id_), **(usual | said))


DIFF: Final = EpisodeDiff(
    left=cost(WEB, status="failed", turns=4, calls=3, tokens=0, ms=4_200),
    right=cost(
        FORK,
        mode="dry_run",
        status="done",
        turns=6,
        calls=4,
        tokens=1_850,
        ms=71_000,
        usd=Decimal("0.0062"),
    ),
    relation="the second is a fork of the first, at step 1",
    common_steps=1,
    step=StepDifference(
        step="2",
        values=[
            ValueDifference(name="call", left="certificate.read", right="certificate.read"),
            ValueDifference(name="arguments", left={"host": "web-3"}, right={"host": "web-4"}),
            ValueDifference(
                name="result",
                left=None,
                right={"issuer": "Example Trust", "days_left": 61, "names": ["web-4.example"]},
            ),
            ValueDifference(
                name="error", left="timed_out: no answer from the host within 2 s", right=None
            ),
        ],
    ),
    begins=[ValueDifference(name="payload", left={"host": "web-3"}, right={"host": "web-4"})],
    findings=[
        ValueDifference(
            name="endpoint:web-3",
            left={"do": "raise", "severity": "critical", "summary": "web-3 does not answer"},
            right=None,
        )
    ],
    outputs=[
        ValueDifference(
            name="pager:page:web-3", left={"payload": {"text": "web-3 is down"}}, right=None
        )
    ],
    ends=[
        ValueDifference(name="status", left="failed", right="done"),
        ValueDifference(name="summary", left=None, right="web-4 is healthy"),
    ],
)
NO_DIFF: Final = EpisodeDiff(
    left=cost(WEB, status="done", turns=4, calls=3, tokens=0, ms=4_200),
    right=cost(WEB_AGAIN, status="done", turns=4, calls=3, tokens=0, ms=3_900),
    relation="",
    common_steps=3,
    step=None,
    begins=[],
    findings=[],
    outputs=[],
    ends=[],
)

COSTS: Final[Rows] = [
    made(
        CostSummary, name="capacity", requests=212, unpriced=0, tokens=1_904_220,
        cost_usd=Decimal("3.218405"), since=before(days=4), until=before(minutes=2),
    ),
    made(
        CostSummary, name="watcher", requests=31, unpriced=2, tokens=88_410,
        cost_usd=Decimal("0.4"), since=before(days=2), until=before(hours=5),
    ),
]  # fmt: skip


def lab_cost(requests: int, tokens: int, usd: str) -> LabCost:
    """Return what requests of an episode have used."""
    return LabCost(requests=requests, tokens=tokens, cost_usd=Decimal(usd))


LAB: Final = [
    LabVerdict(
        episode_id=str(WEB), actor_id="watcher", expectation_id="endpoint_is_healthy",
        differences=(
            LabDifference(what="classification", then={"cause": "disk"}, now={"cause": "unknown"}),
            LabDifference(what="finding endpoint:web-3", then="raised, down, high", now=None),
        ),
        divergence=Divergence(
            request="request 2 of triage", path="1.m2.1",
            then='metrics(host="web-3", name="disk_used")',
            now="Nothing is wrong with web-3.",
        ),
        then=lab_cost(4, 12_410, "0.0382"), now=lab_cost(2, 5_120, "0.0141"), asked=2,
    ),
    LabVerdict(
        episode_id=str(FORK), actor_id="watcher", expectation_id="endpoint_is_healthy",
        differences=(
            LabDifference(
                what="end", then="done", now='no_record: logs.call {"host":"web-3","lines":500}'
            ),
        ),
        divergence=Divergence(
            request="request 1 of triage", path="1.m1.1",
            then='logs(host="web-3", lines=100)', now='logs(host="web-3", lines=500)',
        ),
        then=lab_cost(3, 9_800, "0.0290"), now=lab_cost(1, 2_300, "0.0068"), asked=1,
    ),
    LabVerdict(
        episode_id=str(SLEEPER), actor_id="watcher", expectation_id="endpoint_is_healthy",
        differences=(), divergence=None,
        then=lab_cost(2, 4_050, "0.0110"), now=lab_cost(2, 4_050, "0.0110"), asked=0,
    ),
]  # fmt: skip

ARCHIVED = ArchiveReport(
    at=NOW,
    by="node-1",
    address="/var/lib/vigil/archive",
    is_dry=True,
    parts=[
        PartReport(
            part="journal-0of2",
            messages=1_204_311,
            segments=7,
            stored_bytes=41_220_114,
            archived=9_204_311,
            floor=Bound(
                seq=8_700_121,
                hold=FloorHold.OPEN,
                about=f"vigil.episode.{CRASHED}",
                since=before(hours=900),
            ),
        ),
        PartReport(
            part="journal-1of2",
            messages=1_198_004,
            segments=6,
            stored_bytes=40_998_310,
            archived=9_100_211,
            missed=12,
            floor=Bound(seq=9_100_212, hold=FloorHold.AGE),
        ),
    ],
)

SEGMENTS = [
    SegmentShown(
        part="journal-0of2", first_seq=1, last_seq=200_000, messages=200_000,
        first_at=before(hours=1_200), last_at=before(hours=900), raw_bytes=61_000_000,
        stored_bytes=5_900_120, file="vigil/journal-0of2/20291101T080000Z/1.vigseg",
    ),
    SegmentShown(
        part="journal-0of2", first_seq=400_001, last_seq=600_000, messages=200_000,
        first_at=before(hours=600), last_at=before(hours=500), raw_bytes=61_000_000,
        stored_bytes=5_900_120, file="vigil/journal-0of2/20291101T080000Z/400001.vigseg",
        problem="the segment before it, which ended at 400,000, is missing",
    ),
]  # fmt: skip
