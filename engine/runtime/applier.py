"""Carries out the findings that an episode decided on.

Read the finding, decide, append at that version, and on a conflict decide again. Findings
are aggregates of their own, so this may happen after a crash for the second time: every
event names its cause, and a cause that is already on a finding's log is not carried out again.

Many episodes may raise one finding at once. Those of one node take turns, so they never race
each other; those of several nodes do, and whoever loses waits a little longer each time.

A finding and its episode are two aggregates, whose sequences can be compared only in one stream and
only if neither was copied there. Then some reads are saved; otherwise nothing is compared: a
repeated attempt reads the whole finding, and whoever may have been replaced asks each time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from engine import dryrun, finding
from engine.runtime.backoff import backoff_s, jittered_s
from streams.clock import Clock
from streams.errors import VersionConflict
from streams.events import EpisodeOpened, FindingEvent
from streams.findings import Cause, Finding, FindingIntent, FindingOutcome
from streams.log import START, Commit, EventLog, Recorded
from streams.subjects import Stack
from streams.tracing import traceparent

FINDINGS_IN_FLIGHT_MAX: Final = 32
"""Findings of one episode that are written at a time."""

CONFLICTS_MAX: Final = 100
"""Races for one finding that an episode may lose to other nodes, in up to 50 s, before it is
handed over. Every loss is another's gain."""

CONFLICT_S: Final = 0.002
"""Longest pause after the first lost race: about what one append takes. It doubles each time."""

CONFLICT_MAX_S: Final = 0.5
"""Longest pause between two races."""


class Contended(Exception):
    """A finding is fought over without end. What is left to do is for later; nothing is away."""


class Turns:
    """Who may write a finding next, on one node. Holds no more locks than there are writers."""

    def __init__(self) -> None:
        """Begin with nobody waiting."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, subject: str) -> asyncio.Lock:
        """Return the lock for writing at `subject`. It is forgotten with the last who holds it."""
        return self._locks.setdefault(subject, asyncio.Lock())


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one intent."""

    index: int
    event: FindingEvent | None
    """None: there was nothing to change."""
    seq: int
    outcome: FindingOutcome


def oldest_of(records: Sequence[Recorded]) -> int:
    """Return a sequence such that nothing that an episode caused is older: `since` of `Applier`.

    It is that of the episode's first commit; `START`, which excludes nothing, if that is a copy. A
    finding that was copied from another stream may stand before it, although it was caused later.

    Args:
        records: the episode's journal.
    """
    return START if not records or records[0].is_copied else records[0].seq


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """One intent to carry out."""

    intent: FindingIntent
    index: int
    opened: EpisodeOpened
    attempt: int
    since: int
    version: int | None

    @property
    def cause(self) -> Cause:
        return Cause(episode_id=self.opened.episode_id, index=self.index)

    @property
    def id(self) -> str:
        return f"{self.opened.episode_id}.{self.attempt}.{self.index}"


@dataclass(frozen=True)
class Applier:
    """Writes findings for episodes."""

    log: EventLog
    stack: Stack
    clock: Clock
    turns: Turns
    """The node's: shared by all who write findings there."""

    async def apply(
        self,
        intents: Sequence[FindingIntent],
        *,
        opened: EpisodeOpened,
        attempt: int,
        since: int = START,
        version: int | None = None,
    ) -> list[Applied]:
        """Carry out `intents` and return what became of each, in order.

        Those of a dry run that keeps no findings are left out.

        Args:
            intents: of one episode's convergence. Those on one key are carried out in order.
            opened: the episode.
            attempt: 1 if nobody can have tried before.
            since: as `oldest_of` gives it. Used for findings in the episode's stream only.
            version: the episode's, if someone may take it over meanwhile.

        Raises:
            VersionConflict: someone has. What is left to do is theirs.
            Contended: a finding is fought over without end.
            Unavailable: the log is away.
        """
        if not dryrun.keeps_findings(opened):
            return _left_out(intents)
        room = asyncio.Semaphore(FINDINGS_IN_FLIGHT_MAX)
        by_key: dict[str, list[_Job]] = defaultdict(list)
        for index, intent in enumerate(intents):
            job = _Job(
                intent=intent,
                index=index,
                opened=opened,
                attempt=attempt,
                since=since,
                version=version,
            )
            by_key[intent.finding_key].append(job)

        async def in_order(jobs: list[_Job]) -> list[Applied]:
            async with room:
                return [await self._apply(job) for job in jobs]

        groups = await asyncio.gather(*(in_order(jobs) for jobs in by_key.values()))
        return sorted((one for group in groups for one in group), key=lambda one: one.index)

    async def look(
        self, intents: Sequence[FindingIntent], *, opened: EpisodeOpened, since: int = START
    ) -> list[Applied]:
        """Return what became of `intents` that were all carried out before.

        Args:
            intents: of one episode's convergence.
            opened: the episode.
            since: as for `apply`.
        """
        if not dryrun.keeps_findings(opened):
            return _left_out(intents)
        found = []
        for index, intent in enumerate(intents):
            cause = Cause(episode_id=opened.episode_id, index=index)
            subject = self.stack.finding(intent.finding_key)
            after = since if self._is_beside(subject, opened.episode_id) else START
            records = await self.log.read(subject, after=after)
            event, seq = _find(records, cause)
            found.append(_applied(index, intent, event, seq))
        return found

    async def _apply(self, job: _Job) -> Applied:
        subject = self.stack.finding(job.intent.finding_key)
        # Who loses keeps the turn while it waits: the others here would only lose as well.
        async with self.turns.of(subject):
            for tries in range(1, CONFLICTS_MAX + 1):
                applied = await self._try(job, subject)
                if applied is not None:
                    return applied
                pause_s = backoff_s(tries, first_s=CONFLICT_S, most_s=CONFLICT_MAX_S)
                await self.clock.sleep(jittered_s(pause_s, seed=f"{job.id}.{tries}"))
        raise Contended(f"{subject}: lost {CONFLICTS_MAX} races for it")

    async def _try(self, job: _Job, subject: str) -> Applied | None:
        """Carry out an intent, and return what became of it; None if a rival was faster."""
        is_beside = self._is_beside(subject, job.opened.episode_id)
        since = job.since if is_beside else START
        records = await self._read(subject, since=since, may_be_done=job.attempt > 1)
        if records is None:
            return None
        done, seq = _find(records, job.cause)
        if done is not None:
            return _applied(job.index, job.intent, done, seq)
        if job.version is not None and _version(records) > (job.version if is_beside else START):
            await self._check_ours(job.opened, version=job.version)
        now = self.clock.now()
        event = finding.decide(
            _newest(records),
            job.intent,
            cause=job.cause,
            actor_id=dryrun.found_by(job.opened),
            expectation_id=job.opened.expectation_id,
            at=now,
        )
        if event is None:
            return _applied(job.index, job.intent, None, START)
        commit = Commit(id=job.id, at=now, events=(event,), trace=traceparent())
        try:
            seq = await self.log.append(subject, commit, after=_version(records))
        except VersionConflict:
            return None
        return _applied(job.index, job.intent, event, seq)

    async def _check_ours(self, opened: EpisodeOpened, *, version: int) -> None:
        """Check that nobody had taken the episode over when the finding was read.

        Whoever had may have carried out the intent, or may have found nothing to change. Either
        came after their fence: so a finding that did not change since `version` needs no check.
        One in another stream has no order with `version`, and needs none only if it never changed.
        `version` itself is no copy: this tenure wrote it, and no stack is moved under a node.
        """
        subject = self.stack.episode(opened.episode_id)
        last = await self.log.last(subject)
        if last is None or last.seq != version:
            raise VersionConflict(subject, expected=version)

    def _is_beside(self, subject: str, episode_id: str) -> bool:
        """Return whether the finding at `subject` is in the stream of an episode.

        In two streams, sequences say nothing about what came first.
        """
        own = self.stack.stream_of(self.stack.episode(episode_id))
        return own == self.stack.stream_of(subject)

    async def _read(
        self, subject: str, *, since: int, may_be_done: bool
    ) -> Sequence[Recorded] | None:
        """Return the finding's newest commit, after all that may hold what has been done before.

        None: the commits past `since` could not be read up to the newest, which a replica may
        hold later than the leader. To decide without them could carry out an intent twice.
        """
        last = await self.log.last(subject)
        if last is None:
            return []
        if not may_be_done or last.seq <= since:
            return [last]
        records = await self.log.read(subject, after=since)
        return records if _version(records) >= last.seq else None


def _left_out(intents: Sequence[FindingIntent]) -> list[Applied]:
    return [
        Applied(index=index, event=None, seq=START, outcome=dryrun.left_out(intent))
        for index, intent in enumerate(intents)
    ]


def _events(record: Recorded) -> list[FindingEvent]:
    return [event for event in record.commit.events if isinstance(event, FindingEvent)]


def _find(records: Sequence[Recorded], cause: Cause) -> tuple[FindingEvent | None, int]:
    for record in records:
        event = finding.carried_out(_events(record), cause)
        if event is not None:
            return event, record.seq
    return None, START


def _newest(records: Sequence[Recorded]) -> Finding | None:
    events = _events(records[-1]) if records else []
    return events[-1].finding if events else None


def _version(records: Sequence[Recorded]) -> int:
    return records[-1].seq if records else START


def _applied(index: int, intent: FindingIntent, event: FindingEvent | None, seq: int) -> Applied:
    outcome = finding.outcome_of(intent, event)
    return Applied(index=index, event=event, seq=seq, outcome=outcome)
