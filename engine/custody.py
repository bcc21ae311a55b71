"""What people do to findings: they clear them, take note of them, and say something. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from engine.fields import BY_CHARS_MAX, REASON_CHARS_MAX, check_text
from streams.events import FindingAcknowledged, FindingClearedByHand, FindingNoted
from streams.findings import Finding, FindingStatus, Person


def person(by: str, reason: str = "") -> Person:
    """Return who decides, and why.

    Raises:
        BadRequest: no name, or one that is too long; or too many words.
    """
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    check_text("reason", reason, least=0, most=REASON_CHARS_MAX)
    return Person(by=by, reason=reason)


def clear(finding: Finding, *, cause: Person, at: datetime) -> FindingClearedByHand | None:
    """Return the end of `finding`, or None if it is not active."""
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
    """Return that somebody knows of `finding`; None if it is not active, or somebody does.

    It stays active, expires and gets worse as before.
    """
    if finding.status is not FindingStatus.ACTIVE or finding.acknowledged_by:
        return None
    known = replace(finding, acknowledged_by=cause.by, acknowledged_at=at)
    return FindingAcknowledged(finding=known, cause=cause)


def note(finding: Finding, *, cause: Person) -> FindingNoted:
    """Return what somebody has to say of `finding`, which may have ended."""
    return FindingNoted(finding=finding, cause=cause)
