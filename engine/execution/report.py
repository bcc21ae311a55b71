"""Applies the findings that an episode reports while it runs: announced, applied, recorded.

The announcement has the findings as intents and is durable before any is applied, so whoever has
the episode next carries on what it says, also where the episode does not go on. That is safe to
repeat, as each event of a finding names its intent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from engine.app.actions import ReportFindings, fingerprint
from engine.app.strategy import checked_findings
from engine.episodes import dry_run, results
from engine.episodes.episode import Announce, Episode, Performed
from engine.episodes.writer import JournalWriter
from engine.findings.apply import FindingApplier, log_raised
from engine.usercode.call import call
from engine.validation import KEPT_BYTES_MAX
from streams.json import NOTHING, raw
from streams.model.events import EpisodeOpened, StepAnnounced, StepKind
from streams.model.findings import ClearFinding, FindingIntent, FindingOutcome, RaiseFinding

AGAIN: Final = 1
"""Added to the number of the attempt where a report may have been applied before."""


def announcement(action: ReportFindings, episode: Episode, opened: EpisodeOpened) -> Announce:
    """Return the announcement of a report; `InvalidFinding`: it is impossible."""
    findings = checked_findings(action.findings)
    return Announce(
        fingerprint=fingerprint(action),
        tool_name=StepKind.REPORT.value,
        idempotency_key="",
        findings=dry_run.kept_apart(findings, opened, reported=episode.reported),
    )


def reported(
    findings: Sequence[FindingIntent], outcomes: Sequence[FindingOutcome], *, mark: str
) -> Performed:
    """Return the step of a report with the fingerprint `mark`, and what became of each finding."""
    counts = Counter(_verb(intent) for intent in findings)
    return Performed(
        kind=StepKind.REPORT, fingerprint=mark, args=raw(dict(counts)), result=raw(outcomes)
    )


def _verb(intent: FindingIntent) -> str:
    if isinstance(intent, RaiseFinding):
        return "raise"
    return "clear" if isinstance(intent, ClearFinding) else "update"


@dataclass(frozen=True)
class FindingReports:
    """Applies what one episode reports, on one node."""

    applier: FindingApplier
    opened: EpisodeOpened
    journal: JournalWriter

    async def apply(self, announced: StepAnnounced, *, is_new: bool) -> Performed:
        """Apply the findings of a durable announcement, and return the step.

        `is_new`: whether nobody can have tried before. `VersionConflict`: another node has the
        episode, and applies the rest.
        """
        applied = await self.applier.apply(
            announced.findings,
            opened=self.opened,
            attempt=1 if is_new else self.journal.episode.attempts + AGAIN,
            number=announced.finding_no,
            journal=self.journal,
        )
        outcomes = [one.outcome for one in applied]
        log_raised(self.opened, outcomes)
        outcomes = [dry_run.outcome_as_meant(each, self.opened) for each in outcomes]
        step = reported(announced.findings, outcomes, mark=announced.fingerprint)
        return replace(step, path=announced.path)

    async def settle(self) -> list[Performed]:
        """Return the steps of the reports that were cut off, once their findings are applied.

        For an episode that is about to end: what it has announced is never left undone.
        """
        cut_off = [each for each in self.journal.episode.announced if each.findings]
        return [await self._kept(await self.apply(each, is_new=False)) for each in cut_off]

    async def _kept(self, step: Performed) -> Performed:
        if len(memoryview(step.result)) <= KEPT_BYTES_MAX:
            return step
        objects = self.applier.ports.objects
        about = self.applier.ports.stack.episode(self.opened.episode_id)
        stored = await call(partial(results.store, objects, about=about), step.result)
        return replace(step, result=NOTHING, stored=stored)
