"""What happened to outputs, as rows: one for each event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from projections.statement import Row, Statement
from projections.values import uuid_or_none
from streams.model.events import (
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)


class Happened(Row, omit_defaults=True, kw_only=True):
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


RECORD: Final = Statement(
    name="record_output_events",
    table="output_events",
    keys=("output_key", "journal_seq", "event_no"),
)

Told: TypeAlias = (
    OutputProposed
    | OutputApproved
    | OutputRejected
    | OutputAttempted
    | OutputPostponed
    | OutputDelivered
    | OutputFailed
    | OutputRetried
    | OutputCanceled
)
"""What has a row."""

_KINDS: Final[Mapping[type[Told], str]] = {
    OutputProposed: "output_proposed",
    OutputApproved: "output_approved",
    OutputRejected: "output_rejected",
    OutputAttempted: "output_attempted",
    OutputPostponed: "output_postponed",
    OutputDelivered: "output_delivered",
    OutputFailed: "output_failed",
    OutputRetried: "output_retried",
    OutputCanceled: "output_canceled",
}


def happened(event: Told, *, output_key: str, seq: int, event_no: int, at: datetime) -> Happened:
    """Return the row of one event: the `event_no`-th, from 0, of the commit at `seq`."""
    row = Happened(
        output_key=output_key,
        journal_seq=seq,
        event_no=event_no,
        kind=_KINDS[type(event)],
        at=at,
    )
    _tell(row, event)
    return row


def _tell(row: Happened, event: Told) -> None:
    """Put into `row` what only such an event says."""
    match event:
        case OutputProposed():
            row.proposal_no, row.episode_id = event.proposal_no, uuid_or_none(event.episode_id)
        case OutputApproved() | OutputRejected() | OutputRetried() | OutputCanceled():
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
