"""Carries out the findings that an episode decided on.

Read the finding, decide, append at that version, and on a conflict decide again. Findings
are aggregates of their own, so this may happen after a crash for the second time: every
event names its cause, and a cause that is already on a finding's log is not carried out again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine import finding
from streams.clock import Clock
from streams.errors import Unavailable, VersionConflict
from streams.events import (
    Cause,
    EpisodeOpened,
    Finding,
    FindingEvent,
    FindingIntent,
    FindingOutcome,
)
from streams.log import START, Commit, EventLog, Recorded
from streams.subjects import Stack
from streams.tracing import traceparent

FINDINGS_IN_FLIGHT_MAX: Final = 32
"""Findings of one episode that are written at a time."""

CONFLICTS_MAX: Final = 100
"""Lost races for one finding before the episode is handed back. Every loss is another's gain."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one intent."""

    index: int
    event: FindingEvent | None
    """None: there was nothing to change."""
    seq: int
    outcome: FindingOutcome


@dataclass(frozen=True)
class Applier:
    """Writes findings for episodes."""

    log: EventLog
    stack: Stack
    clock: Clock

    async def apply(
        self,
        intents: Sequence[FindingIntent],
        *,
        opened: EpisodeOpened,
        attempt: int,
        version: int | None = None,
    ) -> list[Applied]:
        """Carry out `intents` and return what became of each, in order.

        Args:
            intents: of one episode's convergence. Those on one key are carried out in order.
            opened: the episode.
            attempt: 1 if nobody can have tried before.
            version: the episode's, if someone may take it over meanwhile.

        Raises:
            VersionConflict: someone has. What is left to do is theirs.
            Unavailable: the log is away, or a finding is fought over without end.
        """
        room = asyncio.Semaphore(FINDINGS_IN_FLIGHT_MAX)
        by_key: dict[str, list[int]] = defaultdict(list)
        for index, intent in enumerate(intents):
            by_key[intent.finding_key].append(index)

        async def in_order(indexes: list[int]) -> list[Applied]:
            async with room:
                return [
                    await self._apply(
                        intents[index], index, opened=opened, attempt=attempt, version=version
                    )
                    for index in indexes
                ]

        groups = await asyncio.gather(*(in_order(indexes) for indexes in by_key.values()))
        return sorted((one for group in groups for one in group), key=lambda one: one.index)

    async def look(self, intents: Sequence[FindingIntent], *, episode_id: str) -> list[Applied]:
        """Return what became of `intents` that were all carried out before."""
        found = []
        for index, intent in enumerate(intents):
            cause = Cause(episode_id=episode_id, index=index)
            records = await self.log.read(self.stack.finding(intent.finding_key))
            event, seq = _find(records, cause)
            found.append(_applied(index, intent, event, seq))
        return found

    async def _apply(
        self,
        intent: FindingIntent,
        index: int,
        *,
        opened: EpisodeOpened,
        attempt: int,
        version: int | None,
    ) -> Applied:
        subject = self.stack.finding(intent.finding_key)
        cause = Cause(episode_id=opened.episode_id, index=index)
        for _ in range(CONFLICTS_MAX):
            records = await self._read(subject, whole=attempt > 1)
            done, seq = _find(records, cause)
            if done is not None:
                return _applied(index, intent, done, seq)
            if version is not None and _version(records) > version:
                await self._check_ours(opened, version=version)
            now = self.clock.now()
            event = finding.decide(
                _newest(records),
                intent,
                cause=cause,
                actor_id=opened.actor_id,
                expectation_id=opened.expectation_id,
                at=now,
            )
            if event is None:
                return _applied(index, intent, None, START)
            commit = Commit(
                id=f"{opened.episode_id}.{attempt}.{index}",
                at=now,
                events=(event,),
                trace=traceparent(),
            )
            try:
                seq = await self.log.append(subject, commit, after=_version(records))
            except VersionConflict:
                continue
            return _applied(index, intent, event, seq)
        raise Unavailable(subject, detail=f"lost {CONFLICTS_MAX} races for it")

    async def _check_ours(self, opened: EpisodeOpened, *, version: int) -> None:
        """Check that nobody had taken the episode over when the finding was read.

        Whoever had may have carried out the intent, or may have found nothing to change. Either
        came after their fence: so a finding that did not change since `version` needs no check.
        """
        subject = self.stack.episode(opened.episode_id)
        last = await self.log.last(subject)
        if last is None or last.seq != version:
            raise VersionConflict(subject, expected=version)

    async def _read(self, subject: str, *, whole: bool) -> Sequence[Recorded]:
        if whole:
            return await self.log.read(subject)
        last = await self.log.last(subject)
        return [last] if last else []


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
