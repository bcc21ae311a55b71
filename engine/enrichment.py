"""Enrichment: what is looked up about a finding once it is raised. Pure, but for the callback.

A user's callback gets the finding as it was raised and may return more evidence, a better summary
or another confidence. It never decides whether the finding is raised, nor how bad it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.finding import checked_confidence, checked_evidence, cut_summary
from engine.outcome import IntentEvent
from engine.strategy import EpisodeView
from streams.events import FindingUpdated
from streams.findings import Finding, FindingStatus
from streams.json import NOTHING

ENRICH_S_MAX: Final = 10.0
"""Longest that an enrichment may take, in seconds. The end of its episode waits for it."""


class Enriched(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked up. None, and JSON `null`, leave a value as it is."""

    evidence: msgspec.Raw = NOTHING
    summary: str | None = None
    confidence: float | None = None


Enrich: TypeAlias = Callable[[Finding, EpisodeView], Enriched | Awaitable[Enriched | None] | None]
"""Looks something up about a finding that an episode has raised; None: there is nothing to add."""


def enriched(
    *, evidence: object = None, summary: str | None = None, confidence: float | None = None
) -> Enriched:
    """Return, from an enrichment, what is to change.

    Args:
        evidence: any JSON value, in the place of what there is; None leaves it.
        summary: one sentence for people; None leaves it.
        confidence: 0.0 to 1.0; None leaves it.

    Raises:
        InvalidFinding, Unencodable: a value is impossible.
    """
    return Enriched(
        evidence=checked_evidence(evidence),
        summary=cut_summary(summary),
        confidence=checked_confidence(confidence),
    )


def enrich(
    finding: Finding, raised: IntentEvent, found: Enriched, *, at: datetime
) -> FindingUpdated | None:
    """Return what was `found` as a change of `finding`, or None if it changes nothing.

    Args:
        finding: as it is by now.
        raised: what was looked up for. What was raised anew since is another finding.
        found: what the callback returned.
        at: when it is added.
    """
    is_there = finding.status is FindingStatus.ACTIVE
    if not is_there or finding.raise_no != raised.finding.raise_no:
        return None
    changed = replace(
        finding,
        evidence=finding.evidence if found.evidence == NOTHING else found.evidence,
        summary=finding.summary if found.summary is None else found.summary,
        confidence=finding.confidence if found.confidence is None else found.confidence,
    )
    if changed == finding:
        return None
    changed = replace(changed, updated_at=at)
    return FindingUpdated(finding=changed, cause=raised.cause, is_enrichment=True)
