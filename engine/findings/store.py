"""Reads findings, and changes one by one decision, made on its newest event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app.context import ACTIVE_DEFAULT
from engine.app.findings import TTL_S_MAX
from engine.episodes import dry_run
from engine.findings import finding as finding_rules
from engine.findings.finding import IntentEvent
from engine.findings.index import FindingIndex, filter_of
from engine.runtime.store import Store, Turns, only_newest
from engine.validation import Duration, seconds_of
from streams.clock import Clock, SystemClock
from streams.errors import BadName
from streams.model.events import EpisodeOpened, FindingEvent, FindingUpdated
from streams.model.findings import Cause, Finding, FindingIntent, FindingOutcome
from streams.ports.all import Ports
from streams.ports.log import START, EventLog, Recorded
from streams.subjects import Stack


class OwnJournal(Protocol):
    """The journal of the episode whose findings are applied, as its writer knows it."""

    def check_newest(self, newest: Recorded | None) -> None:
        """Raise `VersionConflict` if the newest record of the episode is another node's."""


Rule: TypeAlias = Callable[[FindingEvent, datetime], FindingEvent | None]
"""Returns the event to append after the newest one at a time; None: nothing changes."""


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a decision on a finding."""

    before: Finding | None = None
    """The finding as it was; None: there has never been one of this key."""
    newest: FindingEvent | None = None
    """Its newest event, after the change."""
    version: int = START
    is_made: bool = False
    """Whether `newest` is the decision's; False: there was nothing to change."""


@dataclass(frozen=True)
class FindingStore:
    """Changes findings."""

    log: EventLog
    stack: Stack
    clock: Clock
    turns: Turns

    async def change(self, key: str, rule: Rule, *, id: str) -> FindingChange:
        """Change the finding `key` by `rule`; `id` is the commit's. Raises `BadName`."""

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
    """Return the last event of a finding's commit, which is the finding's state since."""
    events = events_of(record)
    assert events, f"a commit of a finding without an event, at {record.seq}"
    return events[-1]


def events_of(record: Recorded) -> list[FindingEvent]:
    """Return the events of a finding's commit, in order."""
    return [event for event in record.commit.events if isinstance(event, FindingEvent)]


@dataclass(frozen=True)
class FindingReader:
    """`Findings` on the log of a stack; see `engine.app.context`."""

    index: FindingIndex
    clock: Clock
    opened: EpisodeOpened | None = None
    """The episode that asks: a dry run that stores findings finds its own first."""

    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding. See `Findings.get`."""
        kept = await self._kept(key)
        return await self._newest(self.index.stack.finding(key)) if kept is None else kept

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it has changed lately. See `Findings.recent`."""
        within_s = seconds_of(within, least_s=0.0, most_s=TTL_S_MAX)
        finding = await self.get(key)
        since = self.clock.now() - timedelta(seconds=within_s)
        return finding if finding is not None and finding.updated_at >= since else None

    async def active(
        self,
        *,
        subject: tuple[str, str | None] | None = None,
        actor: str | None = None,
        class_: str | None = None,
        limit: int = ACTIVE_DEFAULT,
    ) -> Sequence[Finding]:
        """Return findings that are active now. See `Findings.active`."""
        wanted = filter_of(subject=subject, actor=actor, class_=class_, limit=limit)
        return await self.index.active(wanted, prefix=self._prefix, limit=limit)

    @property
    def _prefix(self) -> str:
        return dry_run.prefix_of(self.opened) if self.opened else ""

    async def _kept(self, key: str) -> Finding | None:
        """Return what dry runs with our prefix have stored under `key`, as if it was live."""
        prefix = self._prefix
        if not prefix:  # guard: dry-run-sees-dry-first
            return None
        try:
            subject = self.index.stack.finding(dry_run.key_apart(key, prefix))
        except BadName:  # No finding can be kept under this one, however long `key` may be.
            return None
        finding = await self._newest(subject)
        # guard: dry-finding-shown-as-meant
        return None if finding is None else dry_run.as_meant(finding, prefix)

    async def _newest(self, subject: str) -> Finding | None:
        last = await self.index.log.last(subject)
        return None if last is None else newest_event(last).finding


def findings_of(ports: Ports) -> FindingReader:
    """Return a reader of a stack's findings, for a program that is no node."""
    return FindingReader(FindingIndex(ports.log, ports.stack), SystemClock())


class AppliedIntent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one intent."""

    index: int
    event: IntentEvent | None
    """With the finding after its enrichment; None: there was nothing to change."""
    outcome: FindingOutcome


class StoredIntent(msgspec.Struct, frozen=True, kw_only=True):
    """An intent that is on the log, and its finding since."""

    applied: AppliedIntent
    newest: FindingEvent | None = None
    version: int = START
    before: Finding | None = None
    """The finding before, if we have just changed it."""
    is_enriched: bool = False


class IntentJob(msgspec.Struct, frozen=True, kw_only=True):
    """One intent to apply."""

    intent: FindingIntent
    index: int
    opened: EpisodeOpened
    attempt: int
    """1 if no node can have tried before."""
    journal: OwnJournal | None
    """See `FindingApplier.apply`."""

    @property
    def cause(self) -> Cause:
        """The cause that its events name."""
        return Cause(episode_id=self.opened.episode_id, index=self.index)

    @property
    def id(self) -> str:
        """The id of the commit that applies it."""
        return f"{self.opened.episode_id}.{self.attempt}.{self.index}"


def left_out(intents: Sequence[FindingIntent]) -> list[AppliedIntent]:
    """Return the outcomes of `intents` that are not to be applied."""
    return [
        AppliedIntent(index=index, event=None, outcome=dry_run.left_out(intent))
        for index, intent in enumerate(intents)
    ]


def find(records: Sequence[Recorded], cause: Cause) -> IntentEvent | None:
    """Return the event of `cause`, with the enrichment; None: there is none."""
    found: IntentEvent | None = None
    for record in records:
        for event in events_of(record):
            if finding_rules.is_of(event, cause):
                found = event if found is None else replace(found, finding=event.finding)
    return found


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


def applied_as(index: int, intent: FindingIntent, event: IntentEvent | None) -> AppliedIntent:
    """Return the result of the `index`th intent, which led to `event`."""
    return AppliedIntent(index=index, event=event, outcome=finding_rules.outcome_of(intent, event))
