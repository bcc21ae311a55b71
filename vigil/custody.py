"""What an operator does to a finding from the command line, and what is said about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.errors import BadRequest, NoFinding
from engine.findings.requests import Steward
from engine.findings.store import Change
from streams.clock import SystemClock
from streams.model.findings import Finding, FindingStatus
from vigil.errors import Mistake, Trouble
from vigil.settings import Reading
from vigil.who import who
from vigil.work import connected


def clear(reading: Reading, key: str, *, by: str | None, reason: str) -> str:
    """End a finding, and return what came of it, in words.

    Raises:
        Mistake: there is no such finding, or what was typed cannot be kept.
        Unavailable: the log is away.
    """
    name = who(reading, by)
    change = _do(reading, key, lambda steward: steward.clear(key, by=name, reason=reason))
    if change.is_made:
        return f"{key}: cleared by {name}"
    return f"{key}: nothing to clear, it {_ended(_finding(change))}"


def acknowledge(reading: Reading, key: str, *, by: str | None, reason: str) -> str:
    """Note that somebody knows of a finding, and return what came of it, in words.

    Raises:
        Trouble: it has ended, and nothing was noted.
        Mistake, Unavailable: as `clear`.
    """
    name = who(reading, by)
    change = _do(reading, key, lambda steward: steward.acknowledge(key, by=name, reason=reason))
    if change.is_made:
        return f"{key}: acknowledged by {name}"
    finding = _finding(change)
    if finding.status is not FindingStatus.ACTIVE:
        raise Trouble(f"{key}: nothing to acknowledge, it {_ended(finding)}")
    return f"{key}: nothing to do, {finding.acknowledged_by} has acknowledged it"


def note(reading: Reading, key: str, *, by: str | None, text: str) -> str:
    """Note what somebody has to say of a finding. Otherwise as `clear`."""
    _do(reading, key, lambda steward: steward.note(key, by=who(reading, by), text=text))
    return f"{key}: noted"


def _do(reading: Reading, key: str, act: Callable[[Steward], Awaitable[Change]]) -> Change:
    async def run() -> Change:
        async with connected(reading) as ports:
            return await act(Steward(ports, SystemClock()))

    try:
        return asyncio.run(run())
    except BadRequest as error:
        raise Mistake(str(error)) from error
    except NoFinding as error:
        hint = "`vigil findings list --status all` shows those there are"
        raise Mistake(f"no finding {key!r} in stack {reading.stack.name}; {hint}") from error


def _finding(change: Change) -> Finding:
    assert change.before is not None, "a finding that there is"
    return change.before


def _ended(finding: Finding) -> str:
    """Return how a finding ended, in words."""
    assert finding.cleared_at is not None, "a finding that has ended"
    at = f"{finding.cleared_at:%Y-%m-%d %H:%M:%S} UTC"
    if finding.status is FindingStatus.EXPIRED:
        return f"expired at {at}"
    return f"was cleared at {at} by {finding.cleared_by or 'its actor'}"
