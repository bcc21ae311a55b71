"""What time makes of a finding: it expires, and it gets worse. Pure.

An active finding with an end expires when that has come. One whose class has escalations gets
worse as it grows older, counted from its raise, and only ever worse: what its age has made of its
severity is the least that it has from then on, whatever it is said to be.

Both are decided on the finding as it is. So whoever decides too early, late or twice does no harm:
the finding may have been refreshed, cleared or raised anew since somebody wanted it looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.durations import Duration, seconds_of
from streams.events import FindingEscalated, FindingExpired
from streams.findings import DueTimer, Finding, FindingStatus, Severity

EXPIRE: Final = "expire"
"""Purpose of the timer that has a finding expire. The key is the finding's."""

AgeEvent: TypeAlias = FindingExpired | FindingEscalated
"""What the age of a finding may lead to."""

ESCALATE: Final = "escalate"
"""Purpose of the timer that has it get worse."""

AGE_S_MAX: Final = 365 * 86_400.0
"""Oldest that a finding may be when it gets worse, in seconds: a year."""

AGE_S_MIN: Final = 0.1
"""Youngest, in seconds: timers fire up to 0.25 s late."""


class Escalation(msgspec.Struct, frozen=True):
    """What a finding of a certain age becomes."""

    after_s: float
    """Age, in seconds since it was raised."""
    to: Severity


Escalations: TypeAlias = Mapping[str, Sequence[Escalation]]
"""Class of findings → their escalations, by age."""


def escalate(*, after: Duration, to: str) -> Escalation:
    """Return that a finding which is active for so long is `to` from then on, if not worse.

    Args:
        after: seconds, a text such as `30m`, or a timedelta: from 0.1 s to a year.
        to: `medium`, `high` or `critical`.

    Raises:
        ValueError: a value is impossible.
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
    """Return the end of `finding` if its time has come, or None."""
    is_over = finding.expires_at is not None and finding.expires_at <= at
    if finding.status is not FindingStatus.ACTIVE or not is_over:
        return None
    ended = replace(finding, status=FindingStatus.EXPIRED, updated_at=at, cleared_at=at)
    return FindingExpired(finding=ended, cause=cause)


def grow_worse(
    finding: Finding, steps: Sequence[Escalation], *, cause: DueTimer, at: datetime
) -> FindingEscalated | None:
    """Return what the age of `finding` makes of it, or None if that is nothing new.

    Args:
        finding: as it is.
        steps: the escalations of its class.
        cause: why it is looked at.
        at: when it is.
    """
    if finding.status is not FindingStatus.ACTIVE:
        return None
    due = [step.to for step in _worse(finding, steps) if _due_at(finding, step) <= at]
    if not due:
        return None
    worse = replace(finding, severity=due[-1], escalated_to=due[-1], updated_at=at)
    return FindingEscalated(finding=worse, cause=cause, from_severity=finding.severity)


def wakes_at(finding: Finding, steps: Sequence[Escalation]) -> Mapping[str, datetime]:
    """Return when `finding` must be looked at next, by purpose.

    Args:
        finding: as it is.
        steps: the escalations of its class.
    """
    if finding.status is not FindingStatus.ACTIVE:
        return {}
    wakes = {} if finding.expires_at is None else {EXPIRE: finding.expires_at}
    worse = _worse(finding, steps)
    return wakes | {ESCALATE: _due_at(finding, worse[0])} if worse else wakes


def _worse(finding: Finding, steps: Sequence[Escalation]) -> list[Escalation]:
    return [step for step in steps if step.to.rank > finding.severity.rank]


def _due_at(finding: Finding, step: Escalation) -> datetime:
    return finding.raised_at + timedelta(seconds=step.after_s)
