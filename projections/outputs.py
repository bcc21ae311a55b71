"""The outputs read model: a row per output, as it was last proposed. Pure.

The payload and the question to people come from the proposal. The delivery columns follow the last
event; a decision stays. That an episode will not propose an output has no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypeAlias, assert_never, get_args

import msgspec

from projections.rows import Row, RowChange, Statement, events_of, key, kind_of, uuid_or_none
from streams.model.events import (
    OutputApprovalGiven,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputForgone,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    Resolution,
)
from streams.model.outputs import OutputStatus
from streams.model.waits import Approval
from streams.ports.log import Recorded

RECORD: Final = Statement(
    name="record_output_events",
    table="output_events",
    keys=("output_key", "journal_seq", "event_no"),
    part_of="outputs",
)

PROPOSE: Final = Statement(name="propose_outputs", table="outputs", keys=("output_key",))

ADVANCE: Final = Statement(name="advance_outputs", table="outputs", keys=("output_key",))

APPROVAL_EXPIRED: Final = "approval_expired"
"""Error class of an output that was not approved in time. Adapters may use it, too, but only for an
attempt."""

_EVENTS: Final[frozenset[type[OutputEvent]]] = frozenset(get_args(OutputEvent))

_Later: TypeAlias = (
    OutputApprovalGiven
    | OutputApproved
    | OutputRejected
    | OutputAttempted
    | OutputPostponed
    | OutputDelivered
    | OutputFailed
    | OutputRetried
    | OutputCanceled
)
"""The events that may follow a proposal."""

_Shown: TypeAlias = OutputProposed | _Later
"""The events with a row."""

_STATUSES: Final[Mapping[type[_Later], OutputStatus]] = {
    OutputApprovalGiven: OutputStatus.AWAITING_APPROVAL,
    OutputApproved: OutputStatus.PROPOSED,
    OutputRejected: OutputStatus.REJECTED,
    OutputAttempted: OutputStatus.PROPOSED,
    OutputPostponed: OutputStatus.PROPOSED,
    OutputDelivered: OutputStatus.DELIVERED,
    OutputFailed: OutputStatus.FAILED,
    OutputRetried: OutputStatus.PROPOSED,
    OutputCanceled: OutputStatus.CANCELED,
}


def status_after(event: _Shown) -> OutputStatus:
    """Return the status that an output has after an event."""
    match event:
        case OutputProposed(approval=Approval()) | OutputRetried(approval=Approval()):
            return OutputStatus.AWAITING_APPROVAL
        case OutputProposed():
            return OutputStatus.PROPOSED
        case _:
            return _STATUSES[type(event)]


class OutputHappened(Row, kw_only=True):
    """One row of `sql/record_output_events.sql`."""

    output_key: str
    journal_seq: int
    event_no: int
    kind: str
    at: datetime
    proposal_no: int | None = None
    episode_id: str | None = None
    attempt: int | None = None
    node: str | None = None
    person: str | None = None
    reason: str | None = None
    error_class: str | None = None
    error_detail: str | None = None
    next_attempt_at: datetime | None = None
    delivered_ref: str | None = None
    status: str
    """Of the output, from then on."""


def happened(
    event: _Shown, *, output_key: str, seq: int, event_no: int, at: datetime
) -> OutputHappened:
    """Return the row of one event: the `event_no`-th, from 0, of the commit at `seq`."""
    row = OutputHappened(
        output_key=output_key,
        journal_seq=seq,
        event_no=event_no,
        kind=kind_of(type(event)),
        at=at,
        status=status_after(event).value,
    )
    _tell(row, event)
    return row


def _tell(row: OutputHappened, event: _Shown) -> None:
    """Set the columns of `row` that only this event has."""
    match event:
        case OutputProposed():
            row.proposal_no, row.episode_id = event.proposal_no, uuid_or_none(event.episode_id)
        case (
            OutputApprovalGiven()
            | OutputApproved()
            | OutputRejected()
            | OutputRetried()
            | OutputCanceled()
        ):
            row.person, row.reason = event.by or None, event.reason or None
        case OutputAttempted():
            row.attempt, row.node = event.attempt, event.node or None
        case OutputPostponed() | OutputFailed():
            row.attempt = event.attempt
            row.error_class, row.error_detail = event.error_class, event.error_detail or None
            row.next_attempt_at = event.retry_at if isinstance(event, OutputPostponed) else None
        case OutputDelivered():
            row.attempt, row.delivered_ref = event.attempt, event.delivered_ref or None
        case _:
            assert_never(event)


class Progress(Row, kw_only=True):
    """One row of `sql/advance_outputs.sql`; None leaves most columns as they are.

    A decision is removed when people are asked again.
    """

    output_key: str
    journal_seq: int
    updated_at: datetime
    status: str = ""
    next_attempt_at: datetime | None = None
    """None: no attempt is pending."""
    error_class: str | None = None
    """None: no error."""
    error_detail: str | None = None
    """As `error_class`."""
    attempts: int | None = None
    asked_at: datetime | None = None
    """None: people are not asked again."""
    resolution: str | None = None
    decided_by: str | None = None
    decided_reason: str | None = None
    decision_id: str | None = None
    decided_at: datetime | None = None
    expires_at: datetime | None = None
    delivered_ref: str | None = None
    delivered_at: datetime | None = None
    canceled_at: datetime | None = None
    edited_hash: str | None = None
    payload_hash: str | None = None
    approved_by: tuple[str, ...] | None = None
    edited: tuple[msgspec.Raw] | None = None
    """What is delivered instead of what was proposed; None: nothing is."""


class Proposed(Progress, kw_only=True):
    """One row of `sql/propose_outputs.sql`: the proposal, and what is known to have followed."""

    proposal_no: int
    episode_id: str | None
    actor_id: str
    expectation_id: str
    adapter: str
    payload: msgspec.Raw
    created_at: datetime
    summary: str | None = None
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    barred: str | None = None
    on_expiry: str | None = None
    remind_every_s: float | None = None


class OutputFold:
    """The fold of some consecutive commits of one output."""

    def __init__(self, output_key: str) -> None:
        self._output_key = key(output_key)
        self._row: Progress | None = None
        """What is to happen to the output's row; a `Proposed`, if they propose it."""
        self._happened: list[OutputHappened] = []
        self._happened_before: list[OutputHappened] = []
        """Before it was first proposed in these commits."""

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is no output's, and left out."""
        for event_no, event in enumerate(events_of(record, _EVENTS, whose="an output")):
            if isinstance(event, OutputForgone):
                continue
            seq, at = record.seq, record.commit.at
            # guard: lost-output-has-no-past
            if isinstance(event, OutputProposed) and not isinstance(self._row, Proposed):
                self._happened_before, self._happened = self._happened, []
            self._add(event, seq=seq, at=at)
            self._happened.append(
                happened(event, output_key=self._output_key, seq=seq, event_no=event_no, at=at)
            )

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        for each in self._happened_before:
            yield RowChange(RECORD, each, precedes=True)
        if self._row is not None:
            yield RowChange(PROPOSE if isinstance(self._row, Proposed) else ADVANCE, self._row)
        for each in self._happened:
            yield RowChange(RECORD, each)

    def _add(self, event: _Shown, *, seq: int, at: datetime) -> None:
        if isinstance(event, OutputProposed):
            self._row = _proposed(event, output_key=self._output_key, seq=seq, at=at)
            return
        row = self._row or Progress(output_key=self._output_key, journal_seq=seq, updated_at=at)
        row.journal_seq, row.updated_at = seq, at
        _move(row, event, at=at)
        self._row = row


def _proposed(event: OutputProposed, *, output_key: str, seq: int, at: datetime) -> Proposed:
    row = Proposed(
        output_key=output_key,
        journal_seq=seq,
        status=status_after(event).value,
        proposal_no=event.proposal_no,
        episode_id=uuid_or_none(event.episode_id),
        actor_id=event.actor_id,
        expectation_id=event.expectation_id,
        adapter=event.adapter,
        payload=event.payload,
        created_at=at,
        updated_at=at,
    )
    if event.approval is not None:
        _ask(row, event.approval, at=at)
    return row


def _ask(row: Proposed, approval: Approval, *, at: datetime) -> None:
    row.asked_at = at
    row.payload_hash = approval.plan_hash
    row.summary = approval.summary or None
    row.approvers = approval.approvers
    row.quorum, row.barred = approval.quorum, approval.barred or None
    row.expires_at = approval.expires_at
    row.on_expiry = approval.on_expiry.value
    row.remind_every_s = approval.remind_every_s or None


def _move(row: Progress, event: _Later, *, at: datetime) -> None:
    row.status = status_after(event).value
    # guard: retried-output-no-old-error
    row.next_attempt_at = row.error_class = row.error_detail = None
    match event:
        case OutputApprovalGiven(approval=asked):
            row.payload_hash = asked.plan_hash
            row.approved_by = tuple(each.by for each in asked.given)
        case OutputApproved() | OutputRejected():
            _decide(row, event, at=at)
        case OutputAttempted():
            row.attempts = event.attempt
        case OutputPostponed() | OutputFailed():
            _fail(row, event, at=at)
        case OutputDelivered():
            row.attempts = event.attempt
            row.delivered_ref, row.delivered_at = event.delivered_ref or None, at
        case OutputCanceled():
            row.canceled_at = at
        case OutputRetried(approval=Approval() as asked):
            _ask_again(row, asked, at=at)
        case OutputRetried():
            pass
        case _:
            assert_never(event)


def _decide(row: Progress, event: OutputApproved | OutputRejected, *, at: datetime) -> None:
    word = Resolution.APPROVED if isinstance(event, OutputApproved) else Resolution.DENIED
    row.resolution = (word if event.by else Resolution.EXPIRED).value
    row.decided_by = event.by or None
    row.decided_reason = event.reason or None
    row.decision_id = event.decision_id or None
    row.decided_at = at
    if isinstance(event, OutputApproved) and event.edited_hash:
        row.edited_hash = event.edited_hash  # guard: changed-output-row
        if isinstance(row, Proposed):
            row.payload = event.edited_payload
        else:
            row.edited = (event.edited_payload,)


def _fail(row: Progress, event: OutputPostponed | OutputFailed, *, at: datetime) -> None:
    row.attempts = event.attempt
    row.error_class, row.error_detail = event.error_class, event.error_detail or None
    if isinstance(event, OutputPostponed):
        row.next_attempt_at = event.retry_at
    # guard: unanswered-request-expired
    elif event.attempt == 0 and event.error_class == APPROVAL_EXPIRED:
        row.resolution, row.decided_at = Resolution.EXPIRED.value, at
        row.decided_reason = event.error_detail or None


def _ask_again(row: Progress, asked: Approval, *, at: datetime) -> None:
    row.asked_at = at
    row.expires_at, row.payload_hash = asked.expires_at, asked.plan_hash
    row.approved_by = ()
    # guard: asked-again-undecided
    row.resolution = row.decided_by = row.decided_reason = row.decision_id = None
    row.decided_at = row.edited_hash = None
