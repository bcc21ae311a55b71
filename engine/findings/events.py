"""The public events of findings, as data. Pure. The rules of `engine.episodes.events` apply."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, TypeAlias

from engine.app.findings import AgeEvent
from engine.episodes.events import MARK_BYTES, episode_event, ids_of
from engine.findings.finding import IntentEvent
from engine.runtime.publish import PublicEvent
from streams.json import JsonObject
from streams.model.events import (
    EpisodeOpened,
    FindingAcknowledged,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingExpired,
    FindingNoted,
    FindingRaised,
    FindingUpdated,
)
from streams.model.findings import Finding

ByPerson: TypeAlias = FindingClearedByHand | FindingAcknowledged | FindingNoted
"""What a person does with a finding."""

LateEvent: TypeAlias = AgeEvent | ByPerson
"""Public events that no episode causes."""

Change: TypeAlias = IntentEvent | LateEvent
"""The changes that are published."""

_CHANGES: Final[Mapping[type[Change], str]] = {
    FindingRaised: "raised",
    FindingUpdated: "updated",
    FindingCleared: "cleared",
    FindingClearedByHand: "cleared",
    FindingAcknowledged: "acknowledged",
    FindingNoted: "noted",
    FindingExpired: "expired",
    FindingEscalated: "escalated",
}


def finding_changed(opened: EpisodeOpened, change: IntentEvent, *, seq: int) -> PublicEvent:
    """Return `finding.raised`, `finding.updated` or `finding.cleared`, with an id per intent.

    What enriching it has changed is an update of its own.
    """
    payload = {**ids_of(opened), **_finding(change.finding), "journal_seq": seq}
    what = f"finding.{change.cause.index}"
    if isinstance(change, FindingUpdated) and change.is_enrichment:
        what = f"{what}.enriched"
    return episode_event(opened, f"finding.{change_of(change)}", what, payload)


def finding_changed_since(change: LateEvent, *, seq: int) -> PublicEvent:
    """Return `finding.expired`, `finding.escalated`, or what a person did with the finding.

    The hops start anew, since time or a person is the cause. The id is one per raise, severity or
    note.
    """
    finding, what = change.finding, change_of(change)
    payload: JsonObject = {
        "episode_id": finding.raised_by_episode_id,
        "actor_id": finding.actor_id,
        "expectation_id": finding.expectation_id,
        **_finding(finding),
        "journal_seq": seq,
    }
    mark = blake2b(finding.finding_key.encode(), digest_size=MARK_BYTES).hexdigest()
    id_ = f"finding.{mark}.{finding.raise_no}.{what}"
    match change:
        case FindingExpired():
            pass
        case FindingEscalated(from_severity=before):
            payload |= {"from": before.value, "to": finding.severity.value}
            id_ = f"{id_}.{finding.severity.value}"
        case FindingNoted(cause=cause):
            payload |= {"by": cause.by, "text": cause.reason}
            id_ = f"{id_}.{seq}"
        case FindingClearedByHand(cause=cause) | FindingAcknowledged(cause=cause):
            payload |= {"by": cause.by, "reason": cause.reason}
    return PublicEvent(name=f"finding.{what}", id=id_, payload=payload, hops=1)


def change_of(event: Change) -> str:
    """Return the name of the change."""
    return _CHANGES[type(event)]


def _finding(finding: Finding) -> JsonObject:
    return {
        "finding_key": finding.finding_key,
        "raise_no": finding.raise_no,
        "status": finding.status.value,
        "class": finding.class_,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
        "summary": finding.summary,
        "subject_kind": finding.subject_kind,
        "subject_id": finding.subject_id,
    }
