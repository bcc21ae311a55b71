"""What the world is told about an episode, and what came of it: public events, as data. Pure.

Each is told at least once: a node that dies in between leaves it to the next one to tell, which
may be one too many. Its id comes from what it tells and stays the same, so whoever hears it can
tell a repeat. The stream keeps one of the same id within two minutes; no actor is woken twice.

The world is told nothing of a dry run. Whoever hears of a finding acts on it, and a word in the
payload would hold back only those who look for it: filters that were written before there were
dry runs do not, nor do programs that know the stream and not the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, TypeAlias

from engine.app.findings import AgeEvent
from engine.episodes.events import _MARK_BYTES, _event, _ids
from engine.findings.finding import IntentEvent
from engine.runtime.publish import PublicEvent
from streams.json import JsonObject
from streams.model.events import (
    EpisodeOpened,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingExpired,
    FindingRaised,
    FindingUpdated,
)
from streams.model.findings import Finding

LateEvent: TypeAlias = AgeEvent | FindingClearedByHand
"""What the world is told of that no episode has done."""

Change: TypeAlias = IntentEvent | LateEvent
"""What the world is told of a finding."""

_CHANGES: Final[Mapping[type[Change], str]] = {
    FindingRaised: "raised",
    FindingUpdated: "updated",
    FindingCleared: "cleared",
    FindingClearedByHand: "cleared",
    FindingExpired: "expired",
    FindingEscalated: "escalated",
}


def finding_changed(
    opened: EpisodeOpened, change: IntentEvent, *, index: int, seq: int
) -> PublicEvent:
    """Return `finding.raised`, `finding.updated` or `finding.cleared`, with an id per intent."""
    payload = {**_ids(opened), **_finding(change.finding), "journal_seq": seq}
    return _event(opened, f"finding.{change_of(change)}", f"finding.{index}", payload)


def finding_changed_since(change: LateEvent, *, seq: int) -> PublicEvent:
    """Return `finding.expired`, `finding.escalated` or, by a person, `finding.cleared`.

    No episode did it: `episode_id` is the one that raised the finding, and the hops begin anew,
    for time has passed or a person has come between. Each of them happens once to a raise, but for
    an escalation, which happens once for each severity.
    """
    finding, what = change.finding, change_of(change)
    payload: JsonObject = {
        "episode_id": finding.raised_by_episode_id,
        "actor_id": finding.actor_id,
        "expectation_id": finding.expectation_id,
        **_finding(finding),
        "journal_seq": seq,
    }
    mark = blake2b(finding.finding_key.encode(), digest_size=_MARK_BYTES).hexdigest()
    id_ = f"finding.{mark}.{finding.raise_no}.{what}"
    match change:
        case FindingExpired():
            pass
        case FindingEscalated(from_severity=before):
            payload |= {"from": before.value, "to": finding.severity.value}
            id_ = f"{id_}.{finding.severity.value}"
        case FindingClearedByHand(cause=cause):
            payload |= {"by": cause.by, "reason": cause.reason}
    return PublicEvent(name=f"finding.{what}", id=id_, payload=payload, hops=1)


def change_of(event: Change) -> str:
    """Return what happened to a finding, in one word."""
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
