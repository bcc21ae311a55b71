"""The findings read model: a row per raise of a finding, and a row per event. Pure.

Every event carries the whole finding, so the last one of a raise is its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from projections.statement import Change, Statement
from projections.values import json, text, text_or_none, uuid_or_none
from streams.errors import UnreadableEvent
from streams.events import FindingCleared, FindingEvent, FindingRaised, FindingUpdated
from streams.log import Recorded


class Saved(NamedTuple):
    """One row of `sql/save_findings.sql`."""

    finding_key: str
    raise_no: int
    journal_seq: int
    status: str
    actor_id: str
    expectation_id: str
    class_: str
    severity: str
    confidence: float
    summary: str
    subject_kind: str | None
    subject_id: str | None
    evidence_refs: str | None
    caused_by_key: str | None
    raised_by_episode_id: str | None
    raised_at: datetime
    updated_at: datetime
    cleared_by_episode_id: str | None
    cleared_at: datetime | None
    cleared_reason: str | None


class Happened(NamedTuple):
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
    evidence_refs: str | None
    at: datetime


SAVE: Final = Statement(name="save_findings", table="findings", key_size=2)
RECORD: Final = Statement(name="record_finding_events", table="finding_events", key_size=3)

_KINDS: Final[dict[type[FindingEvent], str]] = {
    FindingRaised: "finding_raised",
    FindingUpdated: "finding_updated",
    FindingCleared: "finding_cleared",
}


def project(record: Recorded) -> Iterator[Change]:
    """Yield the row changes that a commit in a finding's life asks for.

    Raises:
        UnreadableEvent: the life is not a finding's.
    """
    for event_no, event in enumerate(record.commit.events):
        if not isinstance(event, FindingRaised | FindingUpdated | FindingCleared):
            detail = f"{type(event).__name__} in the life of a finding"
            raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
        yield _saved(record, event)
        yield _happened(record, event, event_no=event_no)


def _saved(record: Recorded, event: FindingEvent) -> Change:
    finding = event.finding
    return Change(
        SAVE,
        Saved(
            finding_key=text(finding.finding_key),
            raise_no=finding.raise_no,
            journal_seq=record.seq,
            status=finding.status.value,
            actor_id=text(finding.actor_id),
            expectation_id=text(finding.expectation_id),
            class_=text(finding.class_),
            severity=finding.severity.value,
            confidence=finding.confidence,
            summary=text(finding.summary),
            subject_kind=text_or_none(finding.subject_kind),
            subject_id=text_or_none(finding.subject_id),
            evidence_refs=json(finding.evidence),
            caused_by_key=text_or_none(finding.caused_by_key),
            raised_by_episode_id=uuid_or_none(finding.raised_by_episode_id),
            raised_at=finding.raised_at,
            updated_at=finding.updated_at,
            cleared_by_episode_id=uuid_or_none(finding.cleared_by_episode_id),
            cleared_at=finding.cleared_at,
            cleared_reason=text_or_none(finding.cleared_reason),
        ),
    )


def _happened(record: Recorded, event: FindingEvent, *, event_no: int) -> Change:
    finding = event.finding
    return Change(
        RECORD,
        Happened(
            finding_key=text(finding.finding_key),
            journal_seq=record.seq,
            event_no=event_no,
            kind=_KINDS[type(event)],
            raise_no=finding.raise_no,
            episode_id=uuid_or_none(event.cause.episode_id),
            status=finding.status.value,
            severity=finding.severity.value,
            confidence=finding.confidence,
            summary=text(finding.summary),
            evidence_refs=json(finding.evidence),
            at=record.commit.at,
        ),
    )
