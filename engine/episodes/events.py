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
from typing import Final, Literal

from engine.runtime.publish import PublicEvent
from streams.json import JsonObject, unraw
from streams.model.events import EndStatus, EpisodeConverged, EpisodeFinished, EpisodeOpened
from streams.model.triggers import Mode

_ENDS: Final[Mapping[EndStatus, str]] = {
    EndStatus.DONE: "episode.completed",
    EndStatus.PARTIALLY_FAILED: "episode.completed",
    EndStatus.FAILED: "episode.failed",
    EndStatus.CANCELED: "episode.canceled",
}

OVERFLOW: Final = "overflow"
"""Why an episode was dropped: as many as may were running or waiting."""

_MARK_BYTES: Final = 16
"""Of the hash of a finding's key in an id: so many that no two are ever met with the same."""


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
        failures: the episodes that failed one after the other, the newest last; none if it closed.
        seq: what the journal has the end of the episode at. A breaker is not on the journal.
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
