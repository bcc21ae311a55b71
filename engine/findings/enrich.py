"""Has a finding enriched that an episode has raised: call the user's code → add what it found.

The finding is on the log before, and stays as it is if the callback fails, has nothing to add, or
takes too long. What it added names the intent that raised the finding, so that an episode which is
taken over does not ask again.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import replace

from engine import telemetry
from engine.app.context import EpisodeView
from engine.app.findings import ENRICH_S_MAX, Enrich, Enriched
from engine.app.tools import ToolFailed
from engine.findings.finding import IntentEvent
from engine.findings.store import FindingChange, FindingStore
from engine.runtime.usercode import attempt
from streams.clock import Clock
from streams.json import NOTHING
from streams.model.events import FindingEvent, FindingUpdated
from streams.model.findings import Finding, FindingStatus


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


log = structlog.get_logger("vigil.enricher")

ADDED: Final = "added"
NOTHING_NEW: Final = "nothing"
FAILED: Final = "failed"
"""What may come of an enrichment, as it is counted."""


@dataclass(frozen=True)
class Enricher:
    """Enriches what the episodes of one expectation raise."""

    store: FindingStore
    clock: Clock
    callback: Enrich
    view: EpisodeView

    async def enrich(self, raised: IntentEvent, *, id: str) -> FindingChange | None:
        """Return what was added to a finding that was just raised; None: nothing was.

        Args:
            raised: what happened to it.
            id: of the commit that adds to it.

        Raises:
            Contended: the finding is fought over without end.
            Unavailable: the log is away. Enrich it again.
        """
        found = await self._look_up(raised.finding)
        if found is None:
            return None

        def add(newest: FindingEvent, at: datetime) -> FindingUpdated | None:
            return enrich(newest.finding, raised, found, at=at)

        change = await self.store.change(raised.finding.finding_key, add, id=id)
        self._count(ADDED if change.is_made else NOTHING_NEW)
        return change if change.is_made else None

    async def _look_up(self, finding: Finding) -> Enriched | None:
        try:
            async with self.clock.timeout(ENRICH_S_MAX):
                found = await attempt(_asked(self.callback, finding, self.view))
        except TimeoutError:
            self._failed(finding, f"not done within {ENRICH_S_MAX:g} s")
        except ToolFailed as failure:
            self._failed(finding, str(failure))
        else:
            return self._checked(finding, found)
        return None

    def _checked(self, finding: Finding, found: object) -> Enriched | None:
        """Return what the callback returned, if it can be added."""
        if isinstance(found, Enriched):
            return found
        if found is None:
            self._count(NOTHING_NEW)
        else:
            self._failed(finding, f"it returned a {type(found).__name__}, not enriched(…)")
        return None

    def _failed(self, finding: Finding, why: str) -> None:
        key = finding.finding_key
        log.warning("a finding is left as it is: enriching it failed", finding_key=key, why=why)
        self._count(FAILED)

    def _count(self, outcome: str) -> None:
        labels = {"actor": self.view.actor_id, "outcome": outcome}
        telemetry.enrichments.add(1, labels)


async def _asked(callback: Enrich, finding: Finding, view: EpisodeView) -> object:
    found = callback(finding, view)
    return await found if inspect.isawaitable(found) else found
