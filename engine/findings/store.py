"""What an episode intended with findings, and how far it is on their logs.

Changes a finding by one decision. For what no episode intends: what its age makes of a finding,
what people do to it, what was looked up about it. Every decision is made on the finding as its own
subject has it, so one that has been overtaken finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app.findings import TTL_S_MAX
from engine.episodes import dry_run
from engine.findings import finding as finding_rules
from engine.findings.finding import IntentEvent
from engine.runtime.store import Store, Turns, only_newest
from engine.validation import Duration, seconds_of
from streams.clock import Clock, SystemClock
from streams.errors import BadName
from streams.model.events import EpisodeOpened, FindingEvent, FindingUpdated
from streams.model.findings import Cause, Finding, FindingIntent, FindingOutcome
from streams.ports.all import Ports
from streams.ports.log import START, EventLog, Recorded
from streams.subjects import Stack

Rule: TypeAlias = Callable[[FindingEvent, datetime], FindingEvent | None]
"""What a decision at a time makes of a finding with this newest event; None: nothing."""


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision led to."""

    before: Finding | None = None
    """The finding as it was; None: there has never been one of this key."""
    newest: FindingEvent | None = None
    """Its newest event since."""
    version: int = START
    is_made: bool = False
    """Whether the newest event is what the decision led to; else there was nothing to change."""


@dataclass(frozen=True)
class FindingStore:
    """Changes findings."""

    log: EventLog
    stack: Stack
    clock: Clock
    turns: Turns

    async def change(self, key: str, rule: Rule, *, id: str) -> FindingChange:
        """Change the finding `key` as `rule` says.

        Args:
            key: the finding's.
            rule: pure; asked again whenever somebody was faster.
            id: of the commit, unique for ever.

        Raises:
            BadName: no finding can have this key.
            UnknownOutcome: no answer. It may be changed.
        """

        def decide(newest: FindingEvent | None, at: datetime) -> Sequence[FindingEvent]:
            event = rule(newest, at) if newest is not None else None
            return () if event is None else (event,)

        store = Store[FindingEvent | None, FindingEvent](
            self.log, self.clock, newest_of, after=only_newest, turns=self.turns
        )
        changed = await store.change(self.stack.finding(key), decide, id=id)
        before = changed.before.state
        return FindingChange(
            before=before.finding if before is not None else None,
            newest=changed.after.state,
            version=changed.after.version,
            is_made=bool(changed.events),
        )


def newest_event(record: Recorded) -> FindingEvent:
    """Return the last event of a finding's commit, which says how the finding is since."""
    events = events_of(record)
    assert events, f"a commit of a finding without an event, at {record.seq}"
    return events[-1]


def events_of(record: Recorded) -> list[FindingEvent]:
    """Return the events of a finding's commit, in order."""
    return [event for event in record.commit.events if isinstance(event, FindingEvent)]


@dataclass(frozen=True)
class FindingReader:
    """`Findings` on the journal of a stack; see `engine.app.context`."""

    log: EventLog
    stack: Stack
    clock: Clock
    prefix: str = ""
    """Of the keys that the dry run which asks keeps its findings under; empty: it keeps none."""

    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding. See `Findings.get`."""
        kept = await self._kept(key)
        return await self._newest(self.stack.finding(key)) if kept is None else kept

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it has changed lately. See `Findings.recent`."""
        within_s = seconds_of(within, least_s=0.0, most_s=TTL_S_MAX)
        finding = await self.get(key)
        since = self.clock.now() - timedelta(seconds=within_s)
        return finding if finding is not None and finding.updated_at >= since else None

    async def _kept(self, key: str) -> Finding | None:
        """Return what dry runs with our prefix have kept under `key`, as if it was meant."""
        if not self.prefix:
            return None
        try:
            subject = self.stack.finding(dry_run.key_apart(key, self.prefix))
        except BadName:  # No finding can be kept under this one, however long `key` may be.
            return None
        finding = await self._newest(subject)
        return None if finding is None else dry_run.as_meant(finding, self.prefix)

    async def _newest(self, subject: str) -> Finding | None:
        last = await self.log.last(subject)
        return None if last is None else newest_event(last).finding


def findings_of(ports: Ports) -> FindingReader:
    """Return the findings of a stack, for a program of its own."""
    return FindingReader(ports.log, ports.stack, SystemClock())


class AppliedIntent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one intent."""

    index: int
    event: IntentEvent | None
    """With the finding as it was once it was enriched; None: there was nothing to change."""
    seq: int
    outcome: FindingOutcome


class StoredIntent(msgspec.Struct, frozen=True, kw_only=True):
    """An intent that is on the log, and how its finding is since."""

    applied: AppliedIntent
    newest: FindingEvent | None = None
    version: int = START
    before: Finding | None = None
    """The finding as it was, if we have just changed it."""
    is_enriched: bool = False


def oldest_of(records: Sequence[Recorded]) -> int:
    """Return the sequence of the first of an episode's `records`; what it caused comes later."""
    return records[0].seq if records else START


class IntentJob(msgspec.Struct, frozen=True, kw_only=True):
    """One intent to carry out."""

    intent: FindingIntent
    index: int
    opened: EpisodeOpened
    attempt: int
    """1 if nobody can have tried before."""
    since: int
    """As `oldest_of` gives it."""
    version: int | None
    """The episode's, if someone may take it over meanwhile."""

    @property
    def cause(self) -> Cause:
        """What its events name."""
        return Cause(episode_id=self.opened.episode_id, index=self.index)

    @property
    def id(self) -> str:
        """Of the commit that carries it out."""
        return f"{self.opened.episode_id}.{self.attempt}.{self.index}"


def left_out(intents: Sequence[FindingIntent]) -> list[AppliedIntent]:
    """Return what becomes of `intents` that are not to be carried out: nothing."""
    return [
        AppliedIntent(index=index, event=None, seq=START, outcome=dry_run.left_out(intent))
        for index, intent in enumerate(intents)
    ]


def find(records: Sequence[Recorded], cause: Cause) -> tuple[IntentEvent | None, int]:
    """Return what `cause` has led to, with what was added to it, and where that is."""
    found: IntentEvent | None = None
    seq = START
    for record in records:
        for event in events_of(record):
            if finding_rules.is_of(event, cause):
                found = event if found is None else replace(found, finding=event.finding)
                seq = record.seq
    return found, seq


def is_enriched_by(records: Sequence[Recorded], cause: Cause) -> bool:
    """Return whether what `cause` raised was enriched since."""
    events = (event for record in records for event in events_of(record))
    return any(
        isinstance(event, FindingUpdated) and event.is_enrichment and event.cause == cause
        for event in events
    )


def newest_of(records: Sequence[Recorded]) -> FindingEvent | None:
    """Return the newest event of a finding; None: it has none."""
    return newest_event(records[-1]) if records else None


def applied_as(
    index: int, intent: FindingIntent, event: IntentEvent | None, seq: int
) -> AppliedIntent:
    """Return that the `index`th intent has led to `event`, which is at `seq`."""
    return AppliedIntent(
        index=index, event=event, seq=seq, outcome=finding_rules.outcome_of(intent, event)
    )
