"""The Finding aggregate: what an episode's intent, or a person, makes of a finding. Pure.

There is one aggregate per key. Each of its events carries the whole finding, so the last one is the
state, and names its cause, so that applying an intent twice changes nothing. A finding may have an
end: a time, or a time to live that every raise and update restarts. The intent's value wins over
the finding's, and that over the expectation's. Age is `engine.app.findings`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeGuard

from msgspec.structs import replace

from engine.validation import check_cause
from streams.json import NOTHING
from streams.model.events import (
    FindingAcknowledged,
    FindingCleared,
    FindingClearedByHand,
    FindingEvent,
    FindingNoted,
    FindingRaised,
    FindingUpdated,
)
from streams.model.findings import (
    Cause,
    ClearFinding,
    Finding,
    FindingIntent,
    FindingOutcome,
    FindingStatus,
    Person,
    RaiseFinding,
    UpdateFinding,
)

IntentEvent: TypeAlias = FindingRaised | FindingUpdated | FindingCleared
"""The events that an intent may lead to."""


NEWLY_RAISED: Final = "raised"
"""Outcome of an intent whose finding was not active before."""

_CHANGEABLE: Final = (
    "class_",
    "severity",
    "confidence",
    "summary",
    "subject_kind",
    "subject_id",
    "evidence_json",
    "caused_by_key",
)


def person(by: str, reason: str = "") -> Person:
    """Return the cause of a person's change; raises `BadRequest` if a text cannot be stored."""
    check_cause(by, reason)
    return Person(by=by, reason=reason)


def clear(finding: Finding, *, cause: Person, at: datetime) -> FindingClearedByHand | None:
    """Return the end of `finding`; None if it is not active."""
    if finding.status is not FindingStatus.ACTIVE:
        return None
    cleared = replace(
        finding,
        status=FindingStatus.CLEARED,
        updated_at=at,
        cleared_at=at,
        cleared_by=cause.by,
        cleared_reason=cause.reason,
    )
    return FindingClearedByHand(finding=cleared, cause=cause)


def acknowledge(finding: Finding, *, cause: Person, at: datetime) -> FindingAcknowledged | None:
    """Return the acknowledgement of `finding`, which stays active; None: it cannot have one."""
    if finding.status is not FindingStatus.ACTIVE or finding.acknowledged_by:
        return None
    known = replace(finding, acknowledged_by=cause.by, acknowledged_at=at)
    return FindingAcknowledged(finding=known, cause=cause)


def note(finding: Finding, *, cause: Person) -> FindingNoted:
    """Return a person's note on `finding`, which may have ended."""
    return FindingNoted(finding=finding, cause=cause)


def decide(
    finding: Finding | None,
    intent: FindingIntent,
    *,
    cause: Cause,
    actor_id: str,
    expectation_id: str,
    at: datetime,
    ttl_s: float = 0.0,
) -> IntentEvent | None:
    """Return the event of `intent`, or None; `ttl_s` is the default time to live, 0: none."""
    active = finding if finding and finding.status is FindingStatus.ACTIVE else None
    match intent:
        case RaiseFinding() if active is None:
            raised = Finding(
                finding_key=intent.finding_key,
                raise_no=finding.raise_no + 1 if finding else 1,
                status=FindingStatus.ACTIVE,
                actor_id=actor_id,
                expectation_id=expectation_id,
                raised_by_episode_id=cause.episode_id,
                raised_at=at,
                updated_at=at,
                **_said(intent),
                **_end(None, intent, ttl_s=ttl_s, at=at),
            )
            return FindingRaised(finding=raised, cause=cause)
        case RaiseFinding() | UpdateFinding() if active is not None:
            end = _end(active, intent, ttl_s=ttl_s, at=at)
            updated = replace(active, updated_at=at, **_said(intent), **end)
            # guard: aged-severity-is-least
            return FindingUpdated(finding=_no_less(updated), cause=cause)
        case ClearFinding(reason=reason) if active is not None:
            cleared = replace(
                active,
                status=FindingStatus.CLEARED,
                updated_at=at,
                cleared_at=at,
                cleared_by_episode_id=cause.episode_id,
                cleared_reason=reason,
            )
            return FindingCleared(finding=cleared, cause=cause)
        case _:
            return None


def outcome_of(intent: FindingIntent, event: IntentEvent | None) -> FindingOutcome:
    """Return the outcome that the episode records for `event`."""
    match event:
        case None:
            return FindingOutcome(finding_key=intent.finding_key, outcome="unchanged")
        case FindingRaised(finding=finding):
            outcome = NEWLY_RAISED
        case FindingUpdated(finding=finding):
            outcome = "updated"
        case FindingCleared(finding=finding):
            outcome = "cleared"
    return FindingOutcome(
        finding_key=finding.finding_key, outcome=outcome, raise_no=finding.raise_no
    )


def is_of(event: FindingEvent, cause: Cause) -> TypeGuard[IntentEvent]:
    """Return whether `event` is of an intent, and `cause` its cause."""
    return isinstance(event, IntentEvent) and event.cause == cause


def _said(intent: RaiseFinding | UpdateFinding) -> dict[str, Any]:
    said = {name: getattr(intent, name, None) for name in _CHANGEABLE}
    return {name: value for name, value in said.items() if value is not None and value != NOTHING}


def _end(
    active: Finding | None, intent: RaiseFinding | UpdateFinding, *, ttl_s: float, at: datetime
) -> dict[str, Any]:
    """Return the fields of the finding's end, after `intent`."""
    said_s = intent.ttl_s if isinstance(intent, RaiseFinding) else None
    said_at = intent.expires_at if isinstance(intent, RaiseFinding) else None
    if said_at is not None:
        return {"ttl_s": 0.0, "expires_at": said_at}
    if said_s is None and active is not None and active.expires_at is not None:
        if not active.ttl_s:  # guard: explicit-time-kept
            return {}
        said_s = active.ttl_s
    lasts_s = said_s or (ttl_s if isinstance(intent, RaiseFinding) else 0.0)
    return {"ttl_s": lasts_s, "expires_at": at + timedelta(seconds=lasts_s)} if lasts_s else {}


def _no_less(finding: Finding) -> Finding:
    least = finding.escalated_to
    is_less = least is not None and finding.severity.rank < least.rank
    return replace(finding, severity=least) if is_less else finding
