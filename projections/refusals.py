"""The refusals read model: a row for each event that did not fire an expectation. Pure.

There are as many as the stream keeps: the newest of each expectation, for a day. They are not
rebuilt from the log, which forgets them as they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from projections.rows import Row, RowChange, Statement, key
from streams.ports.refusals import KEPT_MAX, KEPT_S, RecordedRefusal

ADD: Final = Statement(name="add_refusals", table="refusals", keys=("journal_seq", "refused_at"))

TRIM: Final = Statement(name="trim_refusals", table="refusals", keys=("actor_id", "expectation_id"))

FORGET: Final = Statement(name="forget_refusals", table="refusals", keys=())

FORGOTTEN_MAX: Final = 5_000
"""Most rows that one transaction deletes: some milliseconds."""


class RefusalState(Row, kw_only=True):
    """One row of `sql/add_refusals.sql`."""

    journal_seq: int
    event_id: str
    event: str
    actor_id: str
    expectation_id: str
    subject_id: str | None
    refused_at: datetime
    node: str
    reason: str
    compared_with: str
    against: Any


class TrimmedRefusals(Row, kw_only=True):
    """One row of `sql/trim_refusals.sql`: an expectation that has more refusals now."""

    actor_id: str
    expectation_id: str
    rows_max: int


class ForgottenRefusals(Row, kw_only=True):
    """The row of `sql/forget_refusals.sql`."""

    before: datetime
    rows_max: int


def project(records: Iterable[RecordedRefusal]) -> list[RowChange]:
    """Return the row changes that refusals ask for."""
    rows = [_row(each) for each in records]
    places = dict.fromkeys((row.actor_id, row.expectation_id) for row in rows)
    # guard: refusal-rows-as-kept
    trimmed = [
        TrimmedRefusals(actor_id=actor, expectation_id=name, rows_max=KEPT_MAX)
        for actor, name in places
    ]
    return [
        *(RowChange(ADD, row) for row in rows),
        *(RowChange(TRIM, row) for row in trimmed),
    ]


def forget(now: datetime) -> RowChange:
    """Return the change after which the oldest rows that are over a day old are gone."""
    before = now - timedelta(seconds=KEPT_S)
    return RowChange(FORGET, ForgottenRefusals(before=before, rows_max=FORGOTTEN_MAX))


def _row(record: RecordedRefusal) -> RefusalState:
    refusal = record.refusal
    return RefusalState(
        journal_seq=record.seq,
        event_id=key(refusal.event_id),
        event=key(refusal.event),
        actor_id=refusal.actor,
        expectation_id=refusal.expectation,
        subject_id=refusal.subject or None,
        refused_at=refusal.at,
        node=refusal.node,
        reason=refusal.reason,
        compared_with=refusal.words,
        against=msgspec.to_builtins(refusal.against),
    )
