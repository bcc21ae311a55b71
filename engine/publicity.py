"""What the world is told about an episode, and what came of it: public events, as data. Pure.

Each is told at least once: a node that dies in between leaves it to the next one to tell, which
may be one too many. Its id comes from what it tells and stays the same, so whoever hears it can
tell a repeat. The stream keeps one of the same id within two minutes; no actor is woken twice.

The world is told nothing of a dry run. Whoever hears of a finding acts on it, and a word in the
payload would hold back only those who look for it: filters that were written before there were
dry runs do not, nor do programs that know the stream and not the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

import msgspec

from engine.aging import AgeEvent
from engine.blocking import Blocked
from engine.outcome import IntentEvent
from streams.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingExpired,
    FindingRaised,
    FindingUpdated,
)
from streams.findings import Finding
from streams.json import JsonObject, unraw
from streams.triggers import Mode

_ENDS: Final[Mapping[EndStatus, str]] = {
    EndStatus.DONE: "episode.completed",
    EndStatus.PARTIALLY_FAILED: "episode.completed",
    EndStatus.FAILED: "episode.failed",
    EndStatus.CANCELED: "episode.canceled",
}

OVERFLOW: Final = "overflow"
"""Why an episode was dropped: as many as may were running or waiting."""

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

_MARK_BYTES: Final = 16
"""Of the hash of a finding's key in an id: so many that no two are ever met with the same."""


class PublicEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event that the engine itself publishes."""

    name: str
    id: str
    payload: JsonObject
    hops: int


def is_public(opened: EpisodeOpened) -> bool:
    """Return whether the world is told of an episode."""
    return opened.mode is Mode.LIVE


def started(opened: EpisodeOpened, *, attempt: int, node: str, seq: int) -> PublicEvent:
    """Return `episode.started`, with an id for each attempt."""
    payload = {**_ids(opened), "attempt": attempt, "node": node, "journal_seq": seq}
    return _event(opened, "episode.started", f"started.{attempt}", payload)


def queued(opened: EpisodeOpened, *, position: int, seq: int) -> PublicEvent:
    """Return `episode.queued`: it waits for its turn, as the `position`th of its actor's."""
    payload = {**_ids(opened), "position": position, "journal_seq": seq}
    return _event(opened, "episode.queued", "queued", payload)


def dropped(opened: EpisodeOpened, *, detail: str, seq: int) -> PublicEvent:
    """Return `episode.dropped`: there was no room for it, and it was not opened.

    The one event that is told before it is written down: of an episode that was never opened, the
    journal says too little to tell of it later. `seq` is what the lane was at when it was decided.
    """
    payload = {**_ids(opened), "reason": OVERFLOW, "detail": detail, "journal_seq": seq}
    return _event(opened, "episode.dropped", "dropped", payload)


def ended(
    opened: EpisodeOpened, converged: EpisodeConverged | None, end: EpisodeFinished, *, seq: int
) -> PublicEvent:
    """Return `episode.completed`, `episode.failed` or `episode.canceled`, under one id."""
    payload = {
        **_ids(opened),
        "status": end.status.value,
        "error_class": end.error_class,
        "summary": converged.summary if converged else "",
        "confidence": converged.confidence if converged else None,
        "classification": unraw(converged.classification) if converged else None,
        "journal_seq": seq,
    }
    return _event(opened, _ENDS[end.status], "ended", payload)


def blocked(opened: EpisodeOpened, block: Blocked, *, seq: int) -> PublicEvent:
    """Return `episode.blocked`: it waits for people or for word from outside."""
    payload = {**_ids(opened), **_block(block), "journal_seq": seq}
    return _event(opened, "episode.blocked", f"blocked.{block.step_no}", payload)


def reminder(opened: EpisodeOpened, block: Blocked, *, number: int, seq: int) -> PublicEvent:
    """Return `episode.reminder`: it still waits. An id for each time that people are reminded."""
    payload = {**_ids(opened), **_block(block), "number": number, "journal_seq": seq}
    id_ = f"reminder.{block.step_no}.{number}"
    return _event(opened, "episode.reminder", id_, payload)


def resumed(opened: EpisodeOpened, answer: EpisodeResolved, *, seq: int) -> PublicEvent:
    """Return `episode.resumed`: it has its answer, and goes on."""
    payload = {
        **_ids(opened),
        "step_no": answer.step_no,
        "resolution": answer.resolution.value,
        "by": answer.by,
        "reason": answer.reason,
        "journal_seq": seq,
    }
    return _event(opened, "episode.resumed", f"resumed.{answer.step_no}", payload)


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


def breaker_changed(
    opened: EpisodeOpened,
    change: Literal["opened", "closed"],
    *,
    failures: Sequence[str],
    at: datetime,
    seq: int,
    node: str = "",
) -> PublicEvent:
    """Return `circuit_breaker.opened` or `circuit_breaker.closed`, with an id per episode.

    Args:
        opened: the episode whose end changed the breaker; an episode does so once.
        change: what it did.
        failures: the episodes that failed one after the other, the newest last; none if it closed.
        at: when.
        seq: what the journal has the end of the episode at. A breaker is not on the journal.
        node: whose breaker it is; empty: the cluster's.
    """
    payload = {
        **_ids(opened),
        "failures": list(failures),
        "scope": "node" if node else "cluster",
        "node": node,
        "at": at.isoformat(),
        "journal_seq": seq,
    }
    return _event(opened, f"circuit_breaker.{change}", f"breaker.{change}", payload)


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


def _block(block: Blocked) -> JsonObject:
    """Return what the world is told of a block. A plan is for those who may look it up."""
    event, terms = block.event, block.terms
    return {
        "step_no": block.step_no,
        "reason": event.reason.value,
        "ref": block.ref,
        "summary": event.approval.summary if event.approval else "",
        "plan_hash": event.approval.plan_hash if event.approval else "",
        "approvers": list(event.approval.approvers) if event.approval else [],
        "expires_at": terms.expires_at.isoformat() if terms.expires_at else None,
        "blocked_at": block.at.isoformat(),
    }


def _ids(opened: EpisodeOpened) -> JsonObject:
    return {
        "episode_id": opened.episode_id,
        "actor_id": opened.actor_id,
        "expectation_id": opened.expectation_id,
    }


def _event(opened: EpisodeOpened, name: str, what: str, payload: JsonObject) -> PublicEvent:
    return PublicEvent(
        name=name,
        id=f"{opened.episode_id}.{what}",
        payload=payload,
        hops=opened.trigger.hops + 1,
    )
