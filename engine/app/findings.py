"""Findings as strategies write them: intents, escalations and enrichments, checked. Pure.

What follows from an intent is decided in `engine.findings.finding`. `expire` and `grow_worse` are
the rules for age; they look at the finding as it is now, so calling them early, late or twice is
harmless. An escalated severity is a floor for later raises. An enrichment is a user's callback that
adds to a finding after it was raised, but never decides whether it is raised or how severe it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.errors import InvalidFinding
from engine.validation import Duration, seconds_of
from streams.errors import BadName
from streams.json import NOTHING
from streams.model.events import FindingEscalated, FindingExpired
from streams.model.findings import (
    ClearFinding,
    DueTimer,
    Finding,
    FindingStatus,
    RaiseFinding,
    Severity,
    UpdateFinding,
)
from streams.ports.timers import DUE_MAX
from streams.tokens import encode_token
from streams.wire.timers import due_time

EXPIRE: Final = "expire"
"""Purpose of the timer that makes a finding expire. Its key is the finding's."""

AgeEvent: TypeAlias = FindingExpired | FindingEscalated
"""The events that follow from a finding's age."""

ESCALATE: Final = "escalate"
"""Purpose of the timer that escalates a finding."""

AGE_S_MAX: Final = 365 * 86_400.0
"""Highest age of an escalation, in seconds: a year."""

AGE_S_MIN: Final = 0.1
"""Lowest age, in seconds: timers fire up to 0.25 s late."""


SUMMARY_CHARS_MAX: Final = 4_000
"""Longest summary of a finding or an episode; the rest is cut."""

TTL_S_MAX: Final = 3_650 * 86_400.0
"""Longest time to live of a finding, in seconds: ten years."""


ENRICH_S_MAX: Final = 10.0
"""Longest that an enrichment may take, in seconds. The end of its episode waits for it."""


class Escalation(msgspec.Struct, frozen=True):
    """The severity of a finding from a certain age on."""

    after_s: float
    """Age, in seconds since it was raised."""
    to: Severity


Escalations: TypeAlias = Mapping[str, Sequence[Escalation]]
"""Class of findings → their escalations, by age."""


def escalate(*, after: Duration, to: str) -> Escalation:
    """Return the escalation to severity `to` of findings that are active for as long as `after`.

    `after` is a number of seconds, a text such as `30m`, or a timedelta: from 0.1 s to a year. `to`
    is `medium`, `high` or `critical`; a worse finding stays as it is. Raises `ValueError`.
    """
    after_s = seconds_of(after, least_s=AGE_S_MIN, most_s=AGE_S_MAX)
    if to not in tuple(Severity)[1:]:
        raise ValueError(f"{to!r} is not one of {', '.join(tuple(Severity)[1:])}")
    return Escalation(after_s, Severity(to))


def problem_of_escalation(escalation: object) -> str | None:
    """Return why `escalation` cannot work for an expectation, or None."""
    if not isinstance(escalation, Mapping):
        return f"{escalation!r} is not a dict of a class and its escalations"
    for class_, steps in escalation.items():
        if not isinstance(class_, str):
            return f"class {class_!r} is not text"
        if not isinstance(steps, list | tuple) or not steps:
            return f"{class_!r}: {steps!r} is not a list of escalate(after=…, to=…)"
        if strange := [step for step in steps if not isinstance(step, Escalation)]:
            return f"{class_!r}: {strange[0]!r} is not an escalate(after=…, to=…)"
        if any(a.after_s >= b.after_s or a.to.rank >= b.to.rank for a, b in pairwise(steps)):
            return f"{class_!r}: each step must be later and worse than the one before it"
    return None


def expire(finding: Finding, *, cause: DueTimer, at: datetime) -> FindingExpired | None:
    """Return the expiry of `finding` if it is due, or None."""
    # guard: finding-ends-at-its-time
    is_over = finding.expires_at is not None and finding.expires_at <= at
    if finding.status is not FindingStatus.ACTIVE or not is_over:
        return None
    ended = replace(finding, status=FindingStatus.EXPIRED, updated_at=at, cleared_at=at)
    return FindingExpired(finding=ended, cause=cause)


def grow_worse(
    finding: Finding, steps: Sequence[Escalation], *, cause: DueTimer, at: datetime
) -> FindingEscalated | None:
    """Return the escalation of `finding` that its age requires, or None."""
    if finding.status is not FindingStatus.ACTIVE:
        return None
    due = [step.to for step in _worse(finding, steps) if _due_at(finding, step) <= at]
    if not due:
        return None
    worse = replace(finding, severity=due[-1], escalated_to=due[-1], updated_at=at)
    return FindingEscalated(finding=worse, cause=cause, from_severity=finding.severity)


def wakes_at(finding: Finding, steps: Sequence[Escalation]) -> Mapping[str, datetime]:
    """Return when `finding` must be checked next, by timer purpose; `steps` are its escalations."""
    if finding.status is not FindingStatus.ACTIVE:
        return {}
    wakes = {} if finding.expires_at is None else {EXPIRE: finding.expires_at}
    worse = _worse(finding, steps)
    return wakes | {ESCALATE: _due_at(finding, worse[0])} if worse else wakes


def _worse(finding: Finding, steps: Sequence[Escalation]) -> list[Escalation]:
    return [step for step in steps if step.to.rank > finding.severity.rank]


def _due_at(finding: Finding, step: Escalation) -> datetime:
    return finding.raised_at + timedelta(seconds=step.after_s)


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
    ttl_s: float | None = None,
    expires_at: datetime | None = None,
) -> RaiseFinding:
    """Return the intent to make a finding active, or to refresh the active one.

    With None, `severity`, `confidence` and the end of an active finding stay as they are.

    Args:
        key: what the finding is about, stable over time: one finding per key is active.
        class_: its kind, such as `disk_full`.
        severity: `low`, `medium`, `high` or `critical`; a new finding's default is `medium`.
        confidence: 0.0 to 1.0; a new finding's default is 1.0.
        summary: one sentence for people.
        subject: kind and id of the thing observed, such as `("host", "web-1")`.
        evidence: any JSON value.
        caused_by: key of the finding that explains this one.
        ttl_s: seconds until it expires unless it is raised or updated again, over 0 and up to ten
            years; a new finding's default is the expectation's `finding_ttl_s`.
        expires_at: a fixed end instead of `ttl_s`, with a time zone and at most in 2200.

    Raises `InvalidFinding` if a value is impossible; the message names it.
    """
    kind, id_ = _subject(subject)
    return RaiseFinding(
        finding_key=checked_key(key),
        class_=class_,
        severity=None if severity is None else _severity(severity),
        confidence=checked_confidence(confidence),
        summary=cut_summary(summary),
        subject_kind=kind,
        subject_id=id_,
        evidence_json=checked_evidence(evidence),
        caused_by_key=None if caused_by is None else checked_key(caused_by),
        ttl_s=_ttl(ttl_s),
        expires_at=_expires_at(expires_at, ttl_s=ttl_s),
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

    Its time to live starts again. Raises `InvalidFinding` if a value is impossible.
    """
    return UpdateFinding(
        finding_key=checked_key(key),
        severity=None if severity is None else _severity(severity),
        confidence=checked_confidence(confidence),
        summary=cut_summary(summary),
        evidence_json=checked_evidence(evidence),
    )


def clear_finding(key: str, *, reason: str = "") -> ClearFinding:
    """Return the intent to end an active finding. Clearing one that is not active does nothing.

    Raises `InvalidFinding` if the key is impossible.
    """
    return ClearFinding(finding_key=checked_key(key), reason=reason)


def checked_key(key: object) -> str:
    """Return `key` if it can be a finding's; raise `InvalidFinding` otherwise."""
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


def checked_confidence(confidence: object) -> float | None:
    """Return `confidence` if it is valid, or None; raise `InvalidFinding` otherwise."""
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


def _ttl(ttl_s: object) -> float | None:
    if ttl_s is None:
        return None
    is_number = not isinstance(ttl_s, bool)
    if is_number and isinstance(ttl_s, int | float) and 0 < ttl_s <= TTL_S_MAX:
        return float(ttl_s)
    limit = f"up to {TTL_S_MAX:,.0f}"
    raise InvalidFinding(f"ttl_s {ttl_s!r}: must be a number of seconds over 0, {limit}")


def _expires_at(expires_at: object, *, ttl_s: object) -> datetime | None:
    if expires_at is None:
        return None
    if ttl_s is not None:
        raise InvalidFinding("ttl_s and expires_at: say one of the two")
    if not isinstance(expires_at, datetime):
        raise InvalidFinding(f"expires_at {expires_at!r}: must be a datetime with a time zone")
    try:
        return due_time(expires_at)
    except (ValueError, OverflowError) as error:
        limit = f"must have a time zone and be before {DUE_MAX:%Y}"
        raise InvalidFinding(f"expires_at {expires_at.isoformat()}: {limit}") from error


def checked_evidence(evidence: object) -> msgspec.Raw:
    """Return `evidence` as JSON; None gives no bytes. Raises `Unencodable`."""
    return NOTHING if evidence is None else validation.encode(evidence, what="evidence")


def cut_summary(summary: str | None) -> str | None:
    """Return `summary`, cut to `SUMMARY_CHARS_MAX`."""
    return None if summary is None else summary[:SUMMARY_CHARS_MAX]


class Enriched(msgspec.Struct, frozen=True, kw_only=True):
    """What an enrichment found. None, and JSON `null`, leave a value as it is."""

    evidence: msgspec.Raw = NOTHING
    summary: str | None = None
    confidence: float | None = None


def enriched(
    *, evidence: object = None, summary: str | None = None, confidence: float | None = None
) -> Enriched:
    """Return, from an enrichment, the changes to the finding; None leaves a value as it is.

    `evidence` is any JSON value and replaces the old one, `summary` is one sentence for people, and
    `confidence` is from 0.0 to 1.0. Raises `InvalidFinding` or `Unencodable`.
    """
    return Enriched(
        evidence=checked_evidence(evidence),
        summary=cut_summary(summary),
        confidence=checked_confidence(confidence),
    )
