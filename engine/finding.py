"""What strategies intend with findings, checked where it is said. Pure.

`engine.outcome` says what becomes of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from engine import state
from engine.errors import InvalidFinding
from streams.armed import due_time
from streams.errors import BadName
from streams.findings import ClearFinding, RaiseFinding, Severity, UpdateFinding
from streams.json import NOTHING
from streams.timers import DUE_MAX
from streams.tokens import encode_token

SUMMARY_CHARS_MAX: Final = 4_000
"""Longest summary of a finding or an episode; the rest is cut."""

TTL_S_MAX: Final = 3_650 * 86_400.0
"""Longest time to live of a finding, in seconds: ten years."""


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
        ttl_s: seconds after which it expires unless it is raised or updated again, over 0 and up
            to ten years; None leaves an active finding's end, or the expectation's
            `finding_ttl_s`.
        expires_at: when it expires, with a time zone and at most in 2200, whatever is raised or
            updated until then; None as for `ttl_s`. Only one of the two may be said.

    Raises:
        InvalidFinding: a value is impossible; the message says which are not.
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
        evidence=checked_evidence(evidence),
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

    A time to live begins anew.

    Raises:
        InvalidFinding: a value is impossible; the message says which are not.
    """
    return UpdateFinding(
        finding_key=checked_key(key),
        severity=None if severity is None else _severity(severity),
        confidence=checked_confidence(confidence),
        summary=cut_summary(summary),
        evidence=checked_evidence(evidence),
    )


def clear_finding(key: str, *, reason: str = "") -> ClearFinding:
    """Return the intent to end an active finding. Clearing one that is not active does nothing.

    Raises:
        InvalidFinding: the key is impossible.
    """
    return ClearFinding(finding_key=checked_key(key), reason=reason)


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


def checked_confidence(confidence: object) -> float | None:
    """Return `confidence` if it is one, or None.

    Raises:
        InvalidFinding: it is none.
    """
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
    """Return `evidence` as JSON; None is nothing.

    Raises:
        Unencodable: JSON cannot say it.
    """
    return NOTHING if evidence is None else state.encode(evidence, what="evidence")


def cut_summary(summary: str | None) -> str | None:
    """Return `summary`, no longer than may be."""
    return None if summary is None else summary[:SUMMARY_CHARS_MAX]
