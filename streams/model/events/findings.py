"""The life of a finding. Pure.

Every event has the whole finding, so the last one is the state, and names its cause: an episode's
intent, a due timer, or a person.
"""

from __future__ import annotations

from typing import TypeAlias

from streams.model.findings import Cause, DueTimer, Finding, Person, Severity
from streams.model.struct import Event


class FindingRaised(Event, frozen=True, kw_only=True, tag="finding.raised@1"):
    """An observation became active."""

    finding: Finding
    cause: Cause


class FindingUpdated(Event, frozen=True, kw_only=True, tag="finding.updated@1"):
    """An active observation was refreshed or changed."""

    finding: Finding
    cause: Cause
    is_enrichment: bool = False
    """Whether it only adds what was looked up after the intent was carried out."""


class FindingCleared(Event, frozen=True, kw_only=True, tag="finding.cleared@1"):
    """An active observation is over."""

    finding: Finding
    cause: Cause


class FindingExpired(Event, frozen=True, kw_only=True, tag="finding.expired@1"):
    """Nobody has raised or updated it for its whole time to live."""

    finding: Finding
    cause: DueTimer


class FindingEscalated(Event, frozen=True, kw_only=True, tag="finding.escalated@1"):
    """It has been active for so long that it is worse by now."""

    finding: Finding
    cause: DueTimer
    from_severity: Severity


class FindingClearedByHand(Event, frozen=True, kw_only=True, tag="finding.cleared_by_hand@1"):
    """A person decided that it is over."""

    finding: Finding
    cause: Person


class FindingAcknowledged(Event, frozen=True, kw_only=True, tag="finding.acknowledged@1"):
    """A person acknowledged it."""

    finding: Finding
    cause: Person


class FindingNoted(Event, frozen=True, kw_only=True, tag="finding.noted@1"):
    """A person commented on it: the reason of the cause. It is as it was."""

    finding: Finding
    cause: Person


FindingEvent: TypeAlias = (
    FindingRaised
    | FindingUpdated
    | FindingCleared
    | FindingExpired
    | FindingEscalated
    | FindingClearedByHand
    | FindingAcknowledged
    | FindingNoted
)
