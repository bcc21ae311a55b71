"""What a projector follows: two streams and the claims bucket, as row changes.

A feed is opened after a checkpoint and hands out gleanings: what some messages ask for,
and the position that the checkpoint moves to once the rows say it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

import msgspec

from projections import claims, dead, episodes, findings
from projections.errors import OtherJournal
from projections.statement import Arrangement, Batch, Change, arrange
from streams.clock import Clock
from streams.errors import BadName, UnreadableEvent
from streams.leases import ClaimWatch
from streams.log import Follower, Recorded
from streams.ports import Ports
from streams.subjects import Kind, Stack, Stream

MESSAGES_MAX: Final = 500
"""Most messages in one transaction."""

MESSAGES_AT_ONCE: Final = 20
"""Messages made into changes before others may run: under 1 ms. Postgres is at work on the
messages before these, and whoever shares the loop with us must not wait for all of them."""

SILENCE_S: Final = 5.0
"""Longest wait for a message before looking again, in seconds."""


class Gleaning(msgspec.Struct, frozen=True, kw_only=True):
    """What some messages ask for."""

    batches: Sequence[Batch]
    position: int
    mark: str = ""
    """Which commit stands at `position`; empty when nobody can say."""
    events: int
    pending: int
    """Messages that are known to wait behind these."""


class Gleaner(Protocol):
    """A feed that is being followed."""

    async def receive(self) -> Gleaning | None:
        """Return what the next messages ask for, or None after `SILENCE_S` without any.

        Raises:
            UnreadableEvent: the next message cannot be understood. It stays the next one.
        """


class Feed(Protocol):
    """Something to follow."""

    @property
    def projection(self) -> str:
        """Names its checkpoint."""

    def open(self, *, after: int, mark: str) -> AbstractAsyncContextManager[Gleaner]:
        """Return a gleaner of what comes after a position.

        Raises:
            OtherJournal: what is there is not what was followed up to `after`: there is no
                such position, or another commit than `mark` stands there.
        """


class LogFeed:
    """Commits of one stream."""

    def __init__(self, ports: Ports, stream: Stream) -> None:
        self._ports = ports
        self._stream = stream

    @property
    def projection(self) -> str:
        """Return the stream's name within the stack."""
        return self._stream.value

    @asynccontextmanager
    async def open(self, *, after: int, mark: str) -> AsyncIterator[Gleaner]:
        """Follow the stream, if it still is the one that was followed up to `after`."""
        await self._check_same(after, mark)
        async with self._ports.log.follow(self._stream, after=after) as follower:
            yield _CommitGleaner(follower, self._ports.stack)

    async def _check_same(self, after: int, mark: str) -> None:
        stream = self._ports.stack.stream(self._stream)
        head = await self._ports.log.head(self._stream)
        if head < after:
            detail = f"ends at {head}, and the rows show it up to {after}"
            raise OtherJournal(stream, detail=detail)
        # A commit may be gone by now; one that is there is the one that we saw.
        stands = await self._ports.log.at(after, self._stream) if mark else None
        if stands is not None and mark_of(stands) != mark:
            detail = f"holds {mark_of(stands)} at {after}, and the rows show {mark} there"
            raise OtherJournal(stream, detail=detail)


class _CommitGleaner:
    def __init__(self, follower: Follower, stack: Stack) -> None:
        self._follower = follower
        self._stack = stack
        self._unreadable: UnreadableEvent | None = None

    async def receive(self) -> Gleaning | None:
        if self._unreadable is not None:
            raise self._unreadable
        records = await self._follower.receive(most=MESSAGES_MAX, wait_s=SILENCE_S)
        return await self._glean(records) if records else None

    async def _glean(self, records: Sequence[Recorded]) -> Gleaning:
        """Return what `records` ask for, up to the first that cannot be understood.

        Raises:
            UnreadableEvent: that is the first of them.
        """
        arrangement = Arrangement()
        events = 0
        last: Recorded | None = None
        for number, record in enumerate(records, start=1):
            try:
                changes = list(project(record, stack=self._stack))
            except UnreadableEvent as error:
                if last is None:
                    raise
                self._unreadable = error
                break
            for change in changes:
                arrangement.add(change)
            events += len(record.commit.events)
            last = record
            if number % MESSAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return Gleaning(
            batches=arrangement.batches(),
            position=last.seq if last else 0,
            mark=mark_of(last) if last else "",
            events=events,
            pending=self._follower.pending,
        )


class ClaimsFeed:
    """Changes of the claims bucket."""

    projection = "claims"

    def __init__(self, ports: Ports, clock: Clock) -> None:
        self._ports = ports
        self._clock = clock

    @asynccontextmanager
    async def open(self, *, after: int, mark: str) -> AsyncIterator[Gleaner]:  # noqa: ARG002
        """Watch the bucket: first what stands now, whatever the rows say."""
        async with self._ports.leases.watch() as watch:
            yield _ClaimGleaner(watch, self._clock, after=after)


class _ClaimGleaner:
    def __init__(self, watch: ClaimWatch, clock: Clock, *, after: int) -> None:
        self._watch = watch
        self._clock = clock
        self._position = after
        self._knows_what_stands = False

    async def receive(self) -> Gleaning | None:
        seen = await self._watch.receive(most=MESSAGES_MAX, wait_s=SILENCE_S)
        if not seen:
            return None
        forgotten = [] if self._knows_what_stands else [claims.forget(self._clock.now())]
        self._knows_what_stands = True
        self._position = max(self._position, *(change.revision for change in seen))
        return Gleaning(
            batches=arrange([*forgotten, *map(claims.project, seen)]),
            position=self._position,
            events=len(seen),
            pending=0,
        )


def mark_of(record: Recorded) -> str:
    """Return what tells a commit from any that stands at its place in another journal.

    The time does: in a journal made anew the same causes make the same subjects and ids.
    """
    return f"{record.subject} {record.commit.id} {record.commit.at.isoformat()}"


def project(record: Recorded, *, stack: Stack) -> Iterator[Change]:
    """Return the row changes that a commit asks for, whatever its aggregate is.

    Raises:
        UnreadableEvent: the commit does not belong where it is.
    """
    try:
        kind, aggregate = stack.aggregate_of(record.subject)
    except BadName as error:
        raise UnreadableEvent(record.subject, seq=record.seq, detail=str(error)) from error
    match kind:
        case Kind.EPISODE:
            return episodes.project(record, aggregate=aggregate)
        case Kind.FINDING:
            return findings.project(record)
        case Kind.DEAD:
            return dead.project(record, aggregate=aggregate)
