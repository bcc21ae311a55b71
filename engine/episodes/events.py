"""The public events of an episode and of its breaker, as data. Pure.

Each is published at least once: after a crash the next node may publish it again, under the same
id, which is made from the cause. The stream stores one of an id within two minutes, and no actor is
triggered twice. Dry runs publish nothing: a flag in the payload would be missed by filters and
programs that do not look for it, and they would act on findings that are not real.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from engine.runtime.publish import PublicEvent
from streams.json import JsonObject, unraw
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    StepRecorded,
)
from streams.model.money import dollars
from streams.model.service_levels import LevelOutcome
from streams.model.triggers import Mode, WorkflowTrigger

_ENDS: Final[Mapping[EndStatus, str]] = {
    EndStatus.DONE: "episode.completed",
    EndStatus.PARTIALLY_FAILED: "episode.completed",
    EndStatus.FAILED: "episode.failed",
    EndStatus.CANCELED: "episode.canceled",
}

OVERFLOW: Final = "overflow"
"""Why an episode was dropped: its lane was full."""

BUDGET_PERCENTS: Final = (50, 80, 100)
"""Shares of the dollars of a budget that are told when they are spent."""

MARK_BYTES: Final = 16
"""Length of the hash of a finding's key in an id: long enough that two never collide."""


def is_public(opened: EpisodeOpened) -> bool:
    """Return whether an episode publishes events."""
    return opened.mode is Mode.LIVE


def started(opened: EpisodeOpened, *, attempt: int, node: str, seq: int) -> PublicEvent:
    """Return `episode.started`, with an id for each attempt."""
    payload = {**context_of(opened), "attempt": attempt, "node": node, "journal_seq": seq}
    return episode_event(opened, "episode.started", f"started.{attempt}", payload)


def queued(opened: EpisodeOpened, *, position: int, seq: int) -> PublicEvent:
    """Return `episode.queued`: it waits in its lane at this `position`."""
    payload = {**context_of(opened), "position": position, "journal_seq": seq}
    return episode_event(opened, "episode.queued", "queued", payload)


def dropped(opened: EpisodeOpened, *, detail: str, seq: int) -> PublicEvent:
    """Return `episode.dropped`: its lane, at version `seq`, was full, and it was not opened.

    The only event that is published before the journal has it, which has too little for later.
    """
    payload = {**context_of(opened), "reason": OVERFLOW, "detail": detail, "journal_seq": seq}
    return episode_event(opened, "episode.dropped", "dropped", payload)


def ended(
    opened: EpisodeOpened, converged: EpisodeConverged | None, end: EpisodeFinished, *, seq: int
) -> PublicEvent:
    """Return `episode.completed`, `episode.failed` or `episode.canceled`, under one id."""
    payload = {
        **context_of(opened),
        "status": end.status.value,
        "error_class": end.error_class,
        "summary": converged.summary if converged else "",
        "confidence": converged.confidence if converged else None,
        "classification": unraw(converged.classification) if converged else None,
        "journal_seq": seq,
    }
    return episode_event(opened, _ENDS[end.status], "ended", payload)


def breaker_changed(
    opened: EpisodeOpened,
    change: Literal["opened", "closed"],
    *,
    failures: Sequence[str],
    at: datetime,
    seq: int,
    node: str = "",
) -> PublicEvent:
    """Return `circuit_breaker.opened` or `.closed`, of the episode whose end is at `seq`."""
    payload = {
        **ids_of(opened),
        "failures": list(failures),
        "scope": "node" if node else "cluster",
        "node": node,
        "at": at.isoformat(),
        "journal_seq": seq,
    }
    return episode_event(opened, f"circuit_breaker.{change}", f"breaker.{change}", payload)


def breaker_half_opened(
    episode_id: str, *, actor_id: str, expectation_id: str, failures: Sequence[str], node: str
) -> PublicEvent:
    """Return `circuit_breaker.half_opened`: it lets the episode through as its probe."""
    payload: JsonObject = {
        "episode_id": episode_id,
        "actor_id": actor_id,
        "expectation_id": expectation_id,
        "failures": list(failures),
        "scope": "node" if node else "cluster",
        "node": node,
    }
    id_ = f"{episode_id}.breaker.half_opened"
    return PublicEvent(name="circuit_breaker.half_opened", id=id_, payload=payload, hops=1)


def breaker_canceled(opened: EpisodeOpened, *, detail: str, seq: int) -> PublicEvent:
    """Return `circuit_breaker.canceled_episode`: an open breaker ended it."""
    payload = {**context_of(opened), "detail": detail, "journal_seq": seq}
    return episode_event(opened, "circuit_breaker.canceled_episode", "breaker.canceled", payload)


def level_missed(opened: EpisodeOpened, end: EpisodeFinished, *, seq: int) -> PublicEvent | None:
    """Return `service_level.missed`: an episode broke what was promised; None: it did not."""
    level, outcome = opened.service_level, end.service_level
    # guard: level-kept-not-told
    if level is None or outcome is None or outcome is LevelOutcome.MET:
        return None
    payload = {
        **context_of(opened),
        "outcome": outcome.value,
        "start_s": level.start_s,
        "end_s": level.end_s,
        "status": end.status.value,
        "journal_seq": seq,
    }
    return episode_event(opened, "service_level.missed", "service_level", payload)


def budget_used(
    opened: EpisodeOpened, step: StepRecorded, *, before: Decimal, seq: int
) -> Iterator[PublicEvent]:
    """Yield `episode.budget_used` for each share of its dollars that a step has reached.

    `before` is what it had spent until then. What a fork began with was told of the other episode.
    """
    limit, spent = opened.budget.usd, before + step.usd
    if not limit or not step.usd:
        return
    if opened.fork is not None and step.step_no <= opened.fork.step_no:  # guard: forks-past-untold
        return
    for percent in percents_reached(limit, before=before, spent=spent):
        payload = {
            **context_of(opened),
            "limit": "usd",
            "percent": percent,
            "used": dollars(spent),
            "budget": dollars(limit),
            "journal_seq": seq,
        }
        yield episode_event(opened, "episode.budget_used", f"budget_used.{percent}", payload)


def percents_reached(limit: Decimal, *, before: Decimal, spent: Decimal) -> Sequence[int]:
    """Return which of `BUDGET_PERCENTS` of a limit are `spent`, and were not `before`."""
    return [
        percent
        for percent in BUDGET_PERCENTS
        if before * 100 < limit * percent <= spent * 100  # guard: share-of-budget-told-once
    ]


def triggered(opened: EpisodeOpened, *, seq: int) -> PublicEvent:
    """Return `expectation.triggered`: an episode was opened."""
    payload = {**context_of(opened), "entity_id": opened.trigger.entity_id, "journal_seq": seq}
    return episode_event(opened, "expectation.triggered", "triggered", payload)


def claim_lost(opened: EpisodeOpened, *, attempt: int, node: str, seq: int) -> PublicEvent:
    """Return `episode.claim_lost`: another node has taken it over from `node`, which did not end.

    `attempt` is the one that was lost.
    """
    payload = {**context_of(opened), "attempt": attempt, "node": node, "journal_seq": seq}
    return episode_event(opened, "episode.claim_lost", f"claim_lost.{attempt}", payload)


def context_of(opened: EpisodeOpened) -> JsonObject:
    """Return which episode an event is about and why it was opened; no workflow: empty texts."""
    trigger = opened.trigger
    step = trigger if isinstance(trigger, WorkflowTrigger) else None
    return {
        **ids_of(opened),
        "trigger": str(trigger.__struct_config__.tag),
        "instance_id": step.workflow_instance_id if step else "",
        "step": step.workflow_step_id if step else "",
    }


def ids_of(opened: EpisodeOpened) -> JsonObject:
    """Return what says which episode an event is about."""
    return {
        "episode_id": opened.episode_id,
        "actor_id": opened.actor_id,
        "expectation_id": opened.expectation_id,
    }


def episode_event(opened: EpisodeOpened, name: str, what: str, payload: JsonObject) -> PublicEvent:
    """Return an event of an episode; `what` makes its id."""
    return PublicEvent(
        name=name,
        id=f"{opened.episode_id}.{what}",
        payload=payload,
        hops=opened.trigger.hops + 1,
    )
