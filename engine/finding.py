"""Findings: what strategies intend, and what becomes of it. Pure.

A finding is one aggregate per key. Each of its events carries the whole finding, so the
last one is the state, and names the intent that caused it, so that carrying out the same
intent twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine import state
from engine.errors import InvalidFinding
from streams.errors import BadName
from streams.events import FindingCleared, FindingEvent, FindingRaised, FindingUpdated
from streams.findings import (
    Cause,
    ClearFinding,
    Finding,
    FindingIntent,
    FindingOutcome,
    FindingStatus,
    RaiseFinding,
    Severity,
    UpdateFinding,
)
from streams.json import NOTHING
from streams.tokens import encode_token

SUMMARY_CHARS_MAX: Final = 4_000
"""Longest summary of a finding or an episode; the rest is cut."""


def raise_finding(
    key: str,
    *,
    class_: str,
    severity: str | None = None,
    confidence: float | None = None,
    summary: str | None = None,
    subject: tuple[str, str] | None = None,
    evidence: object = None,
    caused_by: str | None = None,
) -> RaiseFinding:
    """Return the intent to make a finding active, or to refresh the active one.

    Args:
        key: what the finding is about, stable over time: one finding per key is active.
        class_: its kind, such as `disk_full`.
        severity: `low`, `medium`, `high` or `critical`; None leaves an active finding's, or
            `medium`.
        confidence: 0.0 to 1.0; None leaves an active finding's, or 1.0.
        summary: one sentence for people.
        subject: kind and id of the thing observed, such as `("host", "web-1")`.
        evidence: any JSON value.
        caused_by: key of the finding that explains this one.

    Raises:
        InvalidFinding: a value is impossible; the message says which are not.
    """
    kind, id_ = _subject(subject)
    return RaiseFinding(
        finding_key=checked_key(key),
        class_=class_,
        severity=None if severity is None else _severity(severity),
        confidence=_confidence(confidence),
        summary=_cut(summary),
        subject_kind=kind,
        subject_id=id_,
        evidence=_evidence(evidence),
        caused_by_key=None if caused_by is None else checked_key(caused_by),
    )


def update_finding(
    key: str,
    *,
    severity: str | None = None,
    confidence: float | None = None,
    summary: str | None = None,
    evidence: object = None,
) -> UpdateFinding:
    """Return the intent to change an active finding; `None` leaves a value as it is.

    Raises:
        InvalidFinding: a value is impossible; the message says which are not.
    """
    return UpdateFinding(
        finding_key=checked_key(key),
        severity=None if severity is None else _severity(severity),
        confidence=_confidence(confidence),
        summary=_cut(summary),
        evidence=_evidence(evidence),
    )


def clear_finding(key: str, *, reason: str = "") -> ClearFinding:
    """Return the intent to end an active finding. Clearing one that is not active does nothing.

    Raises:
        InvalidFinding: the key is impossible.
    """
    return ClearFinding(finding_key=checked_key(key), reason=reason)


def decide(
    finding: Finding | None,
    intent: FindingIntent,
    *,
    cause: Cause,
    actor_id: str,
    expectation_id: str,
    at: datetime,
) -> FindingEvent | None:
    """Return what `intent` makes of `finding`, or None if it changes nothing."""
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
            )
            return FindingRaised(finding=raised, cause=cause)
        case RaiseFinding() | UpdateFinding() if active is not None:
            updated = replace(active, updated_at=at, **_said(intent))
            return FindingUpdated(finding=updated, cause=cause)
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


def outcome_of(intent: FindingIntent, event: FindingEvent | None) -> FindingOutcome:
    """Return what the episode records about an intent that led to `event`."""
    match event:
        case None:
            return FindingOutcome(finding_key=intent.finding_key, outcome="unchanged")
        case FindingRaised(finding=finding):
            outcome = "raised"
        case FindingUpdated(finding=finding):
            outcome = "updated"
        case FindingCleared(finding=finding):
            outcome = "cleared"
    return FindingOutcome(
        finding_key=finding.finding_key, outcome=outcome, raise_no=finding.raise_no
    )


def carried_out(events: Iterable[FindingEvent], cause: Cause) -> FindingEvent | None:
    """Return the event that `cause` has led to among `events`, or None if it has not yet."""
    return next((event for event in events if event.cause == cause), None)


_CHANGEABLE: Final = (
    "class_",
    "severity",
    "confidence",
    "summary",
    "subject_kind",
    "subject_id",
    "evidence",
    "caused_by_key",
)


def _said(intent: RaiseFinding | UpdateFinding) -> dict[str, Any]:
    """Return the fields on which `intent` has something to say."""
    said = {name: getattr(intent, name, None) for name in _CHANGEABLE}
    return {name: value for name, value in said.items() if value is not None and value != NOTHING}


def checked_key(key: object) -> str:
    """Return `key` if a finding may have it.

    Raises:
        InvalidFinding: it may not.
    """
    if not isinstance(key, str):
        raise InvalidFinding(f"finding key {key!r}: must be text")
    try:
        encode_token(key)
    except BadName as error:
        raise InvalidFinding(f"finding key: {error}") from error
    return key


def _severity(severity: object) -> Severity:
    try:
        return Severity(str(severity))
    except ValueError:
        known = ", ".join(Severity)
        raise InvalidFinding(f"severity {severity!r}: must be one of {known}") from None


def _confidence(confidence: object) -> float | None:
    if confidence is None:
        return None
    if isinstance(confidence, int | float) and 0 <= confidence <= 1:
        return float(confidence)
    raise InvalidFinding(f"confidence {confidence!r}: must be a number from 0 to 1")


def _subject(subject: object) -> tuple[str | None, str | None]:
    match subject:
        case None:
            return None, None
        case (str(kind), str(id_)):
            return kind, id_
        case _:
            raise InvalidFinding(f"subject {subject!r}: must be a pair of kind and id, both text")


def _evidence(evidence: object) -> msgspec.Raw:
    return NOTHING if evidence is None else state.encode(evidence, what="evidence")


def _cut(summary: str | None) -> str | None:
    return None if summary is None else summary[:SUMMARY_CHARS_MAX]
