"""What the world is told about an episode: public events, as data. Pure.

Each is told at least once: a node that dies in between leaves it to the next one to tell, which
may be one too many. Its id comes from what it tells and stays the same, so whoever hears it can
tell a repeat. The stream keeps one of the same id within two minutes; no actor is woken twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from streams.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    FindingCleared,
    FindingEvent,
    FindingRaised,
    FindingUpdated,
)
from streams.json import JsonObject, unraw

_ENDS: Final[Mapping[EndStatus, str]] = {
    EndStatus.DONE: "episode.completed",
    EndStatus.PARTIALLY_FAILED: "episode.completed",
    EndStatus.FAILED: "episode.failed",
    EndStatus.CANCELED: "episode.canceled",
}

_FINDINGS: Final[Mapping[type, str]] = {
    FindingRaised: "finding.raised",
    FindingUpdated: "finding.updated",
    FindingCleared: "finding.cleared",
}


class PublicEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event that the engine itself publishes."""

    name: str
    id: str
    payload: JsonObject
    hops: int


def started(opened: EpisodeOpened, *, attempt: int, node: str, seq: int) -> PublicEvent:
    """Return `episode.started`, with an id for each attempt."""
    payload = {**_ids(opened), "attempt": attempt, "node": node, "journal_seq": seq}
    return _event(opened, "episode.started", f"started.{attempt}", payload)


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


def finding_changed(
    opened: EpisodeOpened, change: FindingEvent, *, index: int, seq: int
) -> PublicEvent:
    """Return `finding.raised`, `finding.updated` or `finding.cleared`, with an id per intent."""
    finding = change.finding
    payload = {
        **_ids(opened),
        "finding_key": finding.finding_key,
        "raise_no": finding.raise_no,
        "status": finding.status.value,
        "class": finding.class_,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
        "summary": finding.summary,
        "subject_kind": finding.subject_kind,
        "subject_id": finding.subject_id,
        "journal_seq": seq,
    }
    return _event(opened, _FINDINGS[type(change)], f"finding.{index}", payload)


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
