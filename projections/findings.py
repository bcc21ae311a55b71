"""The findings read model: a row per raise of a finding, and a row per event. Pure.

Every event has the whole finding, so the last one of a raise is its row, until the next raise
supersedes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, get_args

import msgspec
from msgspec.structs import replace

from projections.rows import Row, RowChange, Statement, events_of, key, uuid_or_none
from streams.model.events import (
    FindingAcknowledged,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingEvent,
    FindingExpired,
    FindingNoted,
    FindingRaised,
    FindingUpdated,
)
from streams.model.findings import Cause, Person
from streams.ports.log import Recorded

SUPERSEDED: Final = "superseded"
"""Status of a raise that was followed by another one of the same key."""

SAVE: Final = Statement(name="save_findings", table="findings", keys=("finding_key", "raise_no"))

SUPERSEDE: Final = Statement(
    name="supersede_findings", table="findings", keys=("finding_key", "raise_no")
)

RECORD: Final = Statement(
    name="record_finding_events",
    table="finding_events",
    keys=("finding_key", "journal_seq", "event_no"),
)

_EVENTS: Final[frozenset[type[FindingEvent]]] = frozenset(get_args(FindingEvent))

_KINDS: Final[dict[type[FindingEvent], str]] = {
    FindingRaised: "finding_raised",
    FindingUpdated: "finding_updated",
    FindingCleared: "finding_cleared",
    FindingClearedByHand: "finding_cleared",
    FindingExpired: "finding_expired",
    FindingEscalated: "finding_escalated",
    FindingAcknowledged: "finding_acknowledged",
    FindingNoted: "finding_noted",
}


class Saved(Row, kw_only=True):
    """One row of `sql/save_findings.sql`."""

    finding_key: str
    raise_no: int
    journal_seq: int
    status: str
    actor_id: str
    expectation_id: str
    class_: str = msgspec.field(name="class")
    severity: str
    confidence: float
    summary: str
    subject_kind: str | None
    subject_id: str | None
    evidence_refs: msgspec.Raw
    caused_by_key: str | None
    raised_by_episode_id: str | None
    raised_at: datetime
    updated_at: datetime
    cleared_by_episode_id: str | None
    cleared_at: datetime | None
    cleared_reason: str | None
    cleared_by: str | None
    ttl_s: float | None
    expires_at: datetime | None
    escalated_to: str | None
    acknowledged_by: str | None
    acknowledged_at: datetime | None
    superseded_at: datetime | None = None


class Superseded(Row, kw_only=True):
    """One row of `sql/supersede_findings.sql`."""

    finding_key: str
    raise_no: int
    journal_seq: int
    superseded_at: datetime


class FindingHappened(Row, kw_only=True):
    """One row of `sql/record_finding_events.sql`."""

    finding_key: str
    journal_seq: int
    event_no: int
    kind: str
    raise_no: int
    episode_id: str | None
    status: str
    severity: str
    confidence: float
    summary: str
    evidence_refs: msgspec.Raw
    at: datetime
    from_severity: str | None
    person: str | None
    reason: str | None
    expires_at: datetime | None


class FindingFold:
    """The fold of some consecutive commits of one finding."""

    def __init__(self, finding_key: str) -> None:
        self._finding_key = key(finding_key)
        self._saved: dict[int, Saved] = {}
        self._superseded: dict[int, Superseded] = {}
        self._happened: list[FindingHappened] = []

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is no finding's, and left out."""
        for event_no, event in enumerate(events_of(record, _EVENTS, whose="a finding")):
            saved = _saved(event, finding_key=self._finding_key, seq=record.seq)
            # guard: followed-raise-superseded
            if isinstance(event, FindingRaised) and saved.raise_no > 1:
                self._supersede(saved)
            self._saved[saved.raise_no] = saved
            self._superseded.pop(saved.raise_no, None)
            self._happened.append(_happened(record, event, saved, event_no=event_no))

    def _supersede(self, by: Saved) -> None:
        earlier = Superseded(
            finding_key=by.finding_key,
            raise_no=by.raise_no - 1,
            journal_seq=by.journal_seq,
            superseded_at=by.raised_at,
        )
        saved = self._saved.get(earlier.raise_no)
        if saved is None:
            self._superseded[earlier.raise_no] = earlier
        else:
            said = {"journal_seq": by.journal_seq, "superseded_at": by.raised_at}
            self._saved[earlier.raise_no] = replace(saved, status=SUPERSEDED, **said)

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        for superseded in self._superseded.values():
            yield RowChange(SUPERSEDE, superseded)
        for saved in self._saved.values():
            yield RowChange(SAVE, saved)
        for happened in self._happened:
            yield RowChange(RECORD, happened)


def _saved(event: FindingEvent, *, finding_key: str, seq: int) -> Saved:
    finding = event.finding
    return Saved(
        finding_key=finding_key,
        raise_no=finding.raise_no,
        journal_seq=seq,
        status=finding.status.value,
        actor_id=finding.actor_id,
        expectation_id=finding.expectation_id,
        class_=finding.class_,
        severity=finding.severity.value,
        confidence=finding.confidence,
        summary=finding.summary,
        subject_kind=finding.subject_kind or None,
        subject_id=finding.subject_id or None,
        evidence_refs=finding.evidence_json,
        caused_by_key=finding.caused_by_key or None,
        raised_by_episode_id=uuid_or_none(finding.raised_by_episode_id),
        raised_at=finding.raised_at,
        updated_at=finding.updated_at,
        cleared_by_episode_id=uuid_or_none(finding.cleared_by_episode_id),
        cleared_at=finding.cleared_at,
        cleared_reason=finding.cleared_reason or None,
        cleared_by=finding.cleared_by or None,
        ttl_s=finding.ttl_s or None,
        expires_at=finding.expires_at,
        escalated_to=finding.escalated_to.value if finding.escalated_to else None,
        acknowledged_by=finding.acknowledged_by or None,
        acknowledged_at=finding.acknowledged_at,
    )


def _happened(
    record: Recorded, event: FindingEvent, saved: Saved, *, event_no: int
) -> FindingHappened:
    cause = event.cause
    return FindingHappened(
        finding_key=saved.finding_key,
        journal_seq=record.seq,
        event_no=event_no,
        kind=_KINDS[type(event)],
        raise_no=saved.raise_no,
        episode_id=uuid_or_none(cause.episode_id) if isinstance(cause, Cause) else None,
        status=saved.status,
        severity=saved.severity,
        confidence=saved.confidence,
        summary=saved.summary,
        evidence_refs=saved.evidence_refs,
        at=record.commit.at,
        from_severity=event.from_severity.value if isinstance(event, FindingEscalated) else None,
        person=cause.by if isinstance(cause, Person) else None,
        reason=_reason(event),
        expires_at=event.finding.expires_at,
    )


def _reason(event: FindingEvent) -> str | None:
    if isinstance(event.cause, Person):
        return event.cause.reason or None
    return event.finding.cleared_reason or None if isinstance(event, FindingCleared) else None
