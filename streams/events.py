"""Everything that can happen, as data. Read this file first.

An aggregate (an episode, a finding, a dead letter) is one subject on the log, and
its life is a sequence of commits; a commit is one message that holds one or more of
these events. A tag is the event's name on the wire, with its version: it is never
changed and never reused. Fields may be added with a default, and a default never
changes. A changed meaning is a new tag, and an upcast in `streams/upcasts.py` for the
old one (see docs/adr/0001-wire-format.md).

`msgspec.Raw` fields hold JSON the engine does not look into; JSON `null` is "nothing".
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from streams.json import NOTHING, JsonObject


class Part(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False
):
    """A piece of an event: immutable, and as short on the wire as its defaults allow."""


class Event(Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A fact. Named in the past tense, immutable, complete on its own."""


# What wakes an episode.


class EventTrigger(
    Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="event"
):
    """A domain event fired it."""

    event_id: str
    event_type: str
    """The event's dotted name."""
    payload: JsonObject
    entity_id: str = ""
    """The payload's value under the expectation's `subject_key`; empty without one."""
    hops: int = 0
    """How many engine-made events lie between this one and the outside world."""


class ManualTrigger(
    Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="manual"
):
    """A person or a program asked for it."""

    requested_by: str
    reason: str = ""
    payload: JsonObject = {}
    entity_id: str = ""
    hops: int = 0


Trigger: TypeAlias = EventTrigger | ManualTrigger


class Budget(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What one episode may use. A limit of 0 or less is no limit."""

    turns: int = 12
    """Actions asked of the strategy."""
    tokens: int = 25_000
    """Model tokens, as synthesizers report them."""
    wall_s: float = 120.0
    """Seconds of running: those of the present attempt, and those that the steps of earlier ones
    took. Waiting for the log is not running."""


# Findings, as an episode intends them and as they are.


class Severity(StrEnum):
    """How bad a finding is, lowest first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class FindingStatus(StrEnum):
    """Whether a finding holds."""

    ACTIVE = "active"
    CLEARED = "cleared"


class RaiseFinding(
    Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="do", tag="raise"
):
    """Make a finding active, or refresh the active one. `None` keeps what an active one says."""

    finding_key: str
    class_: str | None = msgspec.field(name="class", default=None)
    severity: Severity | None = None
    confidence: float | None = None
    """0.0 to 1.0."""
    summary: str | None = None
    subject_kind: str | None = None
    subject_id: str | None = None
    evidence: msgspec.Raw = NOTHING
    caused_by_key: str | None = None


class UpdateFinding(
    Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="do", tag="update"
):
    """Change an active finding; without one, nothing happens and the outcome says so."""

    finding_key: str
    severity: Severity | None = None
    confidence: float | None = None
    summary: str | None = None
    evidence: msgspec.Raw = NOTHING


class ClearFinding(
    Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="do", tag="clear"
):
    """End an active finding; without one, nothing happens."""

    finding_key: str
    reason: str = ""


FindingIntent: TypeAlias = RaiseFinding | UpdateFinding | ClearFinding


class Cause(Part, frozen=True, kw_only=True, omit_defaults=True):
    """The intent that a finding's event carries out: the `index`-th of an episode's convergence."""

    episode_id: str
    index: int


class Finding(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A lasting observation about a subject. One per key is active at a time."""

    finding_key: str
    raise_no: int
    """1 for the first raise, +1 for every raise after a clear."""
    status: FindingStatus
    actor_id: str
    expectation_id: str
    class_: str = msgspec.field(name="class", default="")
    severity: Severity = Severity.MEDIUM
    confidence: float = 1.0
    """0.0 to 1.0."""
    summary: str = ""
    subject_kind: str = ""
    subject_id: str = ""
    evidence: msgspec.Raw = NOTHING
    caused_by_key: str = ""
    """Key of the finding that explains this one."""
    raised_by_episode_id: str
    raised_at: datetime
    updated_at: datetime
    cleared_by_episode_id: str = ""
    cleared_at: datetime | None = None
    cleared_reason: str = ""


class FindingOutcome(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one finding intent."""

    finding_key: str
    outcome: str
    """`raised`, `updated`, `cleared`, or `unchanged` when there was nothing to change."""
    raise_no: int = 0


# The life of an episode.


class EpisodeOpened(Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.opened@1"):
    """A trigger passed the gate: an actor has something to do."""

    episode_id: str
    actor_id: str
    expectation_id: str
    trigger: Trigger
    dedupe_key: str
    budget: Budget
    spec_rev: str = ""
    subject_kind: str = ""
    """The expectation's `subject_key`; the value is the trigger's `entity_id`."""
    generation: int = 0


class EpisodeStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.started@1"):
    """A node has it. Also the fence: whoever had it before can no longer append."""

    node: str
    attempt: int
    """1 for the first start, +1 for every takeover."""
    claim_revision: int = 0
    """The claim's revision in its bucket: the fencing token. 0: there was no need for a claim,
    because the same commit holds the end."""
    fresh: bool = False
    """Whether the strategy begins anew: what was recorded before is kept and not folded."""


class EpisodeLeft(Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.left@1"):
    """Its node is going down and calls for another one. Not a crash: the attempt does not count."""

    node: str


class StepKind(StrEnum):
    """What a step did."""

    TOOL_CALL = "tool_call"
    SYNTHESIS = "synthesis"
    OBSERVATION = "observation"
    CHECKPOINT = "checkpoint"


class StepAnnounced(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.step_announced@1"
):
    """A side effect is about to happen. Until a `StepRecorded` follows, nobody knows if it did."""

    step_no: int
    fingerprint: str
    tool_name: str
    """`capability.action`."""
    idempotency_key: str


class StepRecorded(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.step_recorded@1"
):
    """A step is done and is never executed again: a replay folds `result` instead."""

    step_no: int
    """1-based, gapless within an episode."""
    kind: StepKind
    fingerprint: str
    """SHA-256 of the action, in hex."""
    tool_name: str = ""
    """`capability.action` of a tool call."""
    args: msgspec.Raw = NOTHING
    """As people may see them: redacted, without transient values."""
    result: msgspec.Raw = NOTHING
    """As `handle_result` got it, and gets it again in a replay."""
    result_shown: msgspec.Raw = NOTHING
    """As people may see it, where that differs from `result`."""
    error_class: str = ""
    error_detail: str = ""
    cost_tokens: int = 0
    cost_ms: int = 0
    model: str = ""


class CheckpointSaved(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.checkpoint_saved@1"
):
    """The strategy asked for its state to be kept; a replay starts from the newest."""

    checkpoint_no: int
    step_no: int
    """The checkpoint's own step: a replay folds the steps after it."""
    phase: str
    state: msgspec.Raw
    """The state as `handle_result` left it, so that a resume does not repeat the checkpoint."""
    schema_version: int = 1


class EpisodeConverged(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.converged@1"
):
    """The strategy decided what is true. Findings are intent: they are applied after this."""

    classification: msgspec.Raw = NOTHING
    confidence: float | None = None
    """0.0 to 1.0."""
    summary: str = ""
    findings: tuple[FindingIntent, ...] = ()


class EndStatus(StrEnum):
    """How an episode ended."""

    DONE = "done"
    FAILED = "failed"
    PARTIALLY_FAILED = "partially_failed"
    CANCELED = "canceled"


class EpisodeFinished(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="episode.finished@1"
):
    """The one terminal event."""

    status: EndStatus
    turns_used: int = 0
    tokens_used: int = 0
    error_class: str = ""
    error_detail: str = ""
    findings: tuple[FindingOutcome, ...] = ()


EpisodeEvent: TypeAlias = (
    EpisodeOpened
    | EpisodeStarted
    | EpisodeLeft
    | StepAnnounced
    | StepRecorded
    | CheckpointSaved
    | EpisodeConverged
    | EpisodeFinished
)

# The life of a finding. Every event carries the whole finding: the last one is the state.


class FindingRaised(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.raised@1"):
    """An observation became active."""

    finding: Finding
    cause: Cause


class FindingUpdated(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.updated@1"):
    """An active observation was refreshed or changed."""

    finding: Finding
    cause: Cause


class FindingCleared(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.cleared@1"):
    """An active observation no longer holds."""

    finding: Finding
    cause: Cause


FindingEvent: TypeAlias = FindingRaised | FindingUpdated | FindingCleared

# What could not be done.


class DeadLettered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="dead.lettered@1"):
    """Something was rejected for good, and waits for a person."""

    reason: str
    """A stable class: `unreadable`, `not_an_object`, `too_large`, …"""
    detail: str
    stream: str
    """Where the rejected message is, or was."""
    seq: int
    subject: str
    actor_id: str = ""
    episode_id: str = ""
    """The episode that was given up on, where it is one."""
    headers: dict[str, str] = {}
    payload: bytes = b""
    """The message as it came, cut at `PAYLOAD_KEPT_BYTES_MAX`."""
    payload_size_bytes: int = 0


class DeadRequeued(Event, frozen=True, kw_only=True, omit_defaults=True, tag="dead.requeued@1"):
    """A person had it tried again."""

    by: str
    episode_id: str = ""
    """The new episode, where one was opened."""
    event_seq: int = 0
    """The domain event, published again, where it was one."""


class DeadDiscarded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="dead.discarded@1"):
    """A person decided that it is of no use."""

    by: str
    reason: str = ""


PAYLOAD_KEPT_BYTES_MAX = 256 * 1024
"""Most of a rejected message that its dead letter keeps; the whole stays in its stream."""

DeadEvent: TypeAlias = DeadLettered | DeadRequeued | DeadDiscarded

LogEvent: TypeAlias = EpisodeEvent | FindingEvent | DeadEvent
