"""Applies the findings of an episode: read → decide → append at that version, again on a conflict.

After a crash this may run twice: every event names its cause, and a cause that is already on a
finding's log is skipped. The timers and the enrichment follow before the episode records the
result; both are safe to repeat. An enrichment that fails or takes too long changes nothing.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

import structlog
from msgspec.structs import replace

from engine import telemetry
from engine.app.actor import Actor, Expectation
from engine.app.context import EpisodeView, view_of
from engine.app.findings import ENRICH_S_MAX, Enriched
from engine.app.strategy import Enrich
from engine.app.tools import ToolFailed
from engine.episodes import dry_run
from engine.findings import finding as finding_rules
from engine.findings.expire import FindingTimers
from engine.findings.finding import IntentEvent
from engine.findings.index import FindingIndex
from engine.findings.store import (
    AppliedIntent,
    FindingChange,
    FindingReader,
    FindingStore,
    IntentJob,
    OwnJournal,
    StoredIntent,
    applied_as,
    find,
    is_enriched_by,
    left_out,
    newest_of,
)
from engine.runtime.gather import gather_bounded
from engine.runtime.store import Loaded, Store, Turns, only_newest
from engine.usercode.call import attempt
from streams.clock import Clock
from streams.json import NOTHING
from streams.model.events import EpisodeOpened, FindingEvent, FindingUpdated
from streams.model.findings import (
    Finding,
    FindingIntent,
    FindingOutcome,
    FindingStatus,
    RaiseFinding,
)
from streams.ports.all import Ports
from streams.ports.log import START, Recorded

ADDED: Final = "added"

NOTHING_NEW: Final = "nothing"

FAILED: Final = "failed"
"""The results of an enrichment in metrics."""


FINDINGS_IN_FLIGHT_MAX: Final = 32
"""Findings of one episode that are written at a time."""


LoadedFinding: TypeAlias = Loaded[FindingEvent | None]

log = structlog.get_logger("vigil.findings")


def enrich(
    finding: Finding, raised: IntentEvent, found: Enriched, *, at: datetime
) -> FindingUpdated | None:
    """Return `found` as a change of `finding`; None: no change, or it was raised anew since."""
    is_there = finding.status is FindingStatus.ACTIVE
    # guard: no-other-raise-enriched
    if not is_there or finding.raise_no != raised.finding.raise_no:
        return None
    changed = replace(
        finding,
        evidence_json=finding.evidence_json if found.evidence == NOTHING else found.evidence,
        summary=finding.summary if found.summary is None else found.summary,
        confidence=finding.confidence if found.confidence is None else found.confidence,
    )
    if changed == finding:
        return None
    changed = replace(changed, updated_at=at)
    return FindingUpdated(finding=changed, cause=raised.cause, is_enrichment=True)


@dataclass(frozen=True)
class Enricher:
    """Enriches the findings of one expectation."""

    store: FindingStore
    clock: Clock
    callback: Enrich
    view: EpisodeView

    async def enrich(self, raised: IntentEvent, *, id: str) -> FindingChange | None:
        """Return the change of a finding that was just raised; None: there is none."""
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


@dataclass(frozen=True)
class FindingApplier:
    """Writes findings for episodes."""

    ports: Ports
    actors: Mapping[str, Actor]
    """Those of this node."""
    clock: Clock
    turns: Turns
    """Shared by all writers of findings on the node."""
    owner: Actor | None = None
    """The actor as it was when the episodes were opened; None: as it is now."""
    index: FindingIndex | None = None
    """The node's, for what enrichments ask; None: each has one of its own."""

    async def apply(
        self,
        intents: Sequence[FindingIntent],
        *,
        opened: EpisodeOpened,
        attempt: int,
        number: int = 0,
        journal: OwnJournal | None = None,
    ) -> list[AppliedIntent]:
        """Apply `intents` and return their outcomes, in order.

        Intents on one key are applied in order. A dry run that stores no findings applies none.

        Args:
            attempt: 1 if no node can have tried before.
            number: the first one's among all intents of the episode.
            journal: checks the episode's newest record, if another node may take it over
                meanwhile.

        Raises:
            VersionConflict: another node has, and applies the rest.
        """
        if not dry_run.keeps_findings(opened):
            return left_out(intents)  # guard: dry-run-findings-left-out
        by_key: dict[str, list[IntentJob]] = defaultdict(list)
        for index, intent in enumerate(intents, start=number):
            job = IntentJob(
                intent=intent,
                index=index,
                opened=opened,
                attempt=attempt,
                journal=journal,
            )
            by_key[intent.finding_key].append(job)

        read = await self._read([jobs[0] for jobs in by_key.values()])

        async def in_order(jobs: list[IntentJob]) -> list[AppliedIntent]:
            first, *others = jobs
            applied = [await self._apply(first, read.get(first.intent.finding_key))]
            return applied + [await self._apply(job) for job in others]

        most = FINDINGS_IN_FLIGHT_MAX
        groups = await gather_bounded(in_order, by_key.values(), in_flight_max=most)
        return sorted((one for group in groups for one in group), key=lambda one: one.index)

    async def _read(self, jobs: Sequence[IntentJob]) -> Mapping[str, LoadedFinding]:
        """Return the findings of `jobs` by key, read together; none if one read would not do.

        A replica may lag. An append after such a read is refused; that nothing changes is decided
        again on what the leader has.
        """
        # guard: repeated-attempt-reads-alone
        if len(jobs) <= 1 or any(job.attempt > 1 for job in jobs):
            return {}
        subjects = {job.intent.finding_key: self._subject(job) for job in jobs}
        newest = await self.ports.log.newest([*subjects.values()])
        job = jobs[0]
        if newest and job.journal is not None:  # guard: findings-of-latest-claim-together
            await self._check_ours(job.opened, job.journal)
        return {key: _loaded(subject, newest.get(subject)) for key, subject in subjects.items()}

    def _subject(self, job: IntentJob) -> str:
        return self.ports.stack.finding(job.intent.finding_key)

    async def _apply(self, job: IntentJob, read: LoadedFinding | None = None) -> AppliedIntent:
        """Apply an intent; `read` is its finding as it may have been just now."""
        subject = self._subject(job)

        def after(newest: Recorded) -> int:
            # guard: repeated-attempt-reads-whole-finding
            return START if job.attempt > 1 else only_newest(newest)

        store = Store[FindingEvent | None, FindingEvent](
            self.ports.log, self.clock, newest_of, after=after, turns=self.turns
        )
        attempt = partial(self._try, job, store, read)
        known = None if self.turns.of(subject).locked() else read
        carried = await store.retry(subject, attempt, seed=job.id, known=known)
        if carried.newest is None and known is not None:  # guard: lagging-replica-decides-nothing
            carried = await store.retry(subject, attempt, seed=job.id)
        if carried.newest is None:
            return carried.applied
        timers = FindingTimers(self.ports, self.actors, self.clock)
        # guard: takeover-arms-findings
        await timers.arm(carried.newest, version=carried.version, before=carried.before)
        return await self._enriched(job, carried)

    async def _enriched(self, job: IntentJob, carried: StoredIntent) -> AppliedIntent:
        applied, callback = carried.applied, self._expectation(job).enrich
        is_raised = isinstance(job.intent, RaiseFinding) and applied.event is not None
        if callback is None or not is_raised or carried.is_enriched:  # guard: enriched-once
            return applied
        assert applied.event is not None
        log, stack = self.ports.log, self.ports.stack
        findings = FindingReader(self.index or FindingIndex(log, stack), self.clock, job.opened)
        view = view_of(job.opened, stack.name, findings)
        store = FindingStore(log, stack, self.clock, self.turns)
        enricher = Enricher(store, self.clock, callback, view)
        change = await enricher.enrich(applied.event, id=f"{job.id}.enriched")
        if change is None or change.newest is None:
            return applied
        event = replace(applied.event, finding=change.newest.finding)
        return replace(applied, event=event)

    def _expectation(self, job: IntentJob) -> Expectation:
        owner = self.owner or self.actors[job.opened.actor_id]  # guard: running-keeps-finding-rules
        return owner.expectations[job.opened.expectation_id]

    async def _try(
        self,
        job: IntentJob,
        store: Store[FindingEvent | None, FindingEvent],
        checked: LoadedFinding | None,
        loaded: LoadedFinding,
    ) -> StoredIntent:
        """Apply an intent to the finding as it was read; of `checked`, the episode was ours."""
        records, newest, version = loaded.records, loaded.state, loaded.version
        done = find(records, job.cause)
        if done is not None:  # guard: real-carried-out-once
            return StoredIntent(
                applied=applied_as(job.index, job.intent, done),
                newest=newest,
                version=version,
                is_enriched=is_enriched_by(records, job.cause),
            )
        # guard: findings-of-latest-claim
        if job.journal is not None and newest is not None and loaded is not checked:
            await self._check_ours(job.opened, job.journal)
        before = newest.finding if newest else None
        now = self.clock.now()
        event = self._decide(job, before, at=now)
        if event is None:
            return StoredIntent(applied=applied_as(job.index, job.intent, None))
        stored = await store.append(loaded, (event,), id=job.id, at=now)
        applied = applied_as(job.index, job.intent, event)
        return StoredIntent(applied=applied, newest=event, version=stored.version, before=before)

    def _decide(
        self, job: IntentJob, before: Finding | None, *, at: datetime
    ) -> IntentEvent | None:
        return finding_rules.decide(
            before,
            job.intent,
            cause=job.cause,
            actor_id=dry_run.found_by(job.opened),
            expectation_id=job.opened.expectation_id,
            at=at,
            ttl_s=self._expectation(job).finding_ttl_s,
        )

    async def _check_ours(self, opened: EpisodeOpened, journal: OwnJournal) -> None:
        """Check that no other node had taken the episode over when the finding was read.

        A finding without any event needs no check: nobody has applied anything to it.
        """
        subject = self.ports.stack.episode(opened.episode_id)
        journal.check_newest(await self.ports.log.last(subject))


def log_raised(opened: EpisodeOpened, outcomes: Iterable[FindingOutcome]) -> None:
    """Log the findings of an episode that were not active before."""
    for outcome in outcomes:
        if outcome.outcome == finding_rules.NEWLY_RAISED:
            log.info(
                "finding raised",
                actor=opened.actor_id,
                episode_id=opened.episode_id,
                finding_key=outcome.finding_key,
            )


def _loaded(subject: str, newest: Recorded | None) -> LoadedFinding:
    records = () if newest is None else (newest,)
    return Loaded(subject, newest_of(records), records)
