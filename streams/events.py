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

from streams.findings import (
    Cause,
    DueTimer,
    Finding,
    FindingIntent,
    FindingOutcome,
    Person,
    Severity,
)
from streams.json import NOTHING
from streams.lanes import Ticket
from streams.parts import Event
from streams.triggers import Budget, Mode, Overrides, Trigger

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
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None
    """Of a dry run."""
    priority: int = 0
    """The higher, the sooner its turn comes, where episodes wait for one."""
    opened_by: str = ""
    """The node whose gate it passed; empty: a person's doing."""
    is_request: bool = False
    """Whether that node asked for it only, and leaves running it to others."""
    start_by: datetime | None = None
    """Not begun by then, it is canceled; None: it waits for as long as it takes."""


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

# The life of a finding. Every event carries the whole finding: the last one is the state. Each
# names its cause: the intent of an episode, a timer that came due, or a person.


class FindingRaised(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.raised@1"):
    """An observation became active."""

    finding: Finding
    cause: Cause


class FindingUpdated(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.updated@1"):
    """An active observation was refreshed or changed."""

    finding: Finding
    cause: Cause
    is_enrichment: bool = False
    """Whether it only adds what was looked up after the intent was carried out."""


class FindingCleared(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.cleared@1"):
    """An active observation no longer holds."""

    finding: Finding
    cause: Cause


class FindingExpired(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.expired@1"):
    """Nobody has raised or updated it for its whole time to live."""

    finding: Finding
    cause: DueTimer


class FindingEscalated(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.escalated@1"
):
    """It has been active for so long that it is worse by now."""

    finding: Finding
    cause: DueTimer
    from_severity: Severity


class FindingClearedByHand(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.cleared_by_hand@1"
):
    """A person decided that it no longer holds."""

    finding: Finding
    cause: Person


class FindingAcknowledged(
    Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.acknowledged@1"
):
    """A person said that they know of it."""

    finding: Finding
    cause: Person


class FindingNoted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding.noted@1"):
    """A person had something to say about it: the reason of the cause. It is as it was."""

    finding: Finding
    cause: Person


FindingEvent: TypeAlias = (
    FindingRaised
    | FindingUpdated
    | FindingCleared
    | FindingExpired
    | FindingEscalated
    | FindingClearedByHand
    | FindingAcknowledged
    | FindingNoted
)

# The life of a lane: who waits for a turn, and whose turn it is.


class LaneMoved(Event, frozen=True, kw_only=True, omit_defaults=True, tag="lane.moved@1"):
    """What the dispatcher of an actor decided at one moment, and how far it has read."""

    cursors: dict[str, int] = msgspec.field(default_factory=dict)
    """Name of an event, or `<stream>/<subject>` of a feed → sequence up to which all such events
    were ruled on; only those that changed."""
    placed: tuple[Ticket, ...] = ()
    admitted: tuple[str, ...] = ()
    """Episodes whose turn it is: they may run from now on."""
    shed: tuple[str, ...] = ()
    """Episodes that waited, and lost their place to others."""
    dropped: dict[str, str] = msgspec.field(default_factory=dict)
    """Episode → why it did not even get a place."""
    left: tuple[str, ...] = ()
    """Episodes that have ended."""
    kept_at: int = 0
    """Version of the newest `LaneKept` before it; 0: there is none."""


class LaneKept(Event, frozen=True, kw_only=True, omit_defaults=True, tag="lane.kept@1"):
    """The whole lane, so that nobody need read what came before."""

    cursors: dict[str, int] = msgspec.field(default_factory=dict)
    waiting: tuple[Ticket, ...] = ()
    """In the order in which they will be admitted."""
    admitted: tuple[Ticket, ...] = ()
    """In the order in which they were."""
    newest_number: int = 0
    """That of the ticket that was placed last."""


LaneEvent: TypeAlias = LaneMoved | LaneKept

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
    headers: dict[str, str] = msgspec.field(default_factory=dict)
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

LogEvent: TypeAlias = EpisodeEvent | FindingEvent | LaneEvent | DeadEvent
