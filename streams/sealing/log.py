"""The log of a stack that encrypts what it has of its subjects of data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec.structs import replace

from streams.errors import UnreadableEvent
from streams.json import UNDECODABLE
from streams.layout import Kind, Stream
from streams.ports.log import START, Commit, EventLog, Follower, Recorded
from streams.sealing.contents import without_contents
from streams.sealing.seals import Seals
from streams.sealing.subjects import STANDING, Whose, whose_events, whose_subject
from streams.subjects import Stack
from streams.wire import codec


class SealedLog:
    """`EventLog` on another one."""

    def __init__(self, log: EventLog, seals: Seals, stack: Stack) -> None:
        self._log, self._seals, self._stack = log, seals, stack

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        """See `EventLog.append`."""
        sealed = await self._sealed(subject, commit, after=after)
        return await self._log.append(subject, sealed, after=after)

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        """See `EventLog.read`."""
        return [await self._opened(each) for each in await self._log.read(subject, after=after)]

    async def last(self, subject: str) -> Recorded | None:
        """See `EventLog.last`."""
        found = await self._log.last(subject)
        return None if found is None else await self._opened(found)

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        """See `EventLog.newest`."""
        found = await self._log.newest(subjects)
        return {subject: await self._opened(each) for subject, each in found.items()}

    async def subjects(self, kind: Kind) -> Sequence[str]:
        """See `EventLog.subjects`."""
        return await self._log.subjects(kind)

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        """See `EventLog.at`."""
        found = await self._log.at(seq, stream, partition=partition)
        return None if found is None else await self._opened(found)

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        """See `EventLog.head`."""
        return await self._log.head(stream, partition=partition)

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `EventLog.first_seq`."""
        return await self._log.first_seq(stream, partition=partition)

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `EventLog.page`."""
        found = await self._log.page(
            stream, after=after, up_to=up_to, most=most, partition=partition
        )
        return await self.opened(found)

    def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AbstractAsyncContextManager[Follower]:
        """See `EventLog.follow`."""
        return self._follow(stream, after=after, partition=partition)

    @asynccontextmanager
    async def _follow(
        self, stream: Stream, *, after: int, partition: int
    ) -> AsyncIterator[Follower]:
        async with self._log.follow(stream, after=after, partition=partition) as follower:
            yield _SealedFollower(follower, self)

    async def _sealed(self, subject: str, commit: Commit, *, after: int) -> Commit:
        emptied = without_contents(commit.events)
        if emptied is commit.events:
            return commit
        owner = whose_subject(subject, self._stack)
        is_standing = owner is not None and owner.kind in STANDING
        whose: list[Whose] = []
        if after == START or not is_standing:
            whose.append(whose_events(commit.events, self._seals.kinds))
        if after != START:
            # guard: later-commit-as-the-first
            whose = [*(each for each in whose if each is not None), owner]
        name = await self._seals.name_of_first(*whose)
        if owner is not None and is_standing and after == START:
            self._seals.note(owner, name)
        if not name:
            return commit
        sealed = await self._seals.seal(codec.encode_events(commit.events), name)
        # guard: contents-leave-the-events
        return replace(commit, events=emptied, sealed=sealed)

    async def opened(self, records: Sequence[Recorded]) -> Sequence[Recorded]:
        """See `EventLog.opened`: as they were before, as far as there are keys."""
        return [await self._opened(each) for each in records]

    async def _opened(self, record: Recorded) -> Recorded:
        sealed = record.commit.sealed
        if sealed is None:
            return record
        try:
            data = await self._seals.unseal(sealed)
            if data is None:  # guard: erased-commit-folds-on
                return record
            events = codec.decode_events(data)
        except UNDECODABLE as error:
            raise UnreadableEvent(record.subject, seq=record.seq, detail=str(error)) from error
        return replace(record, commit=replace(record.commit, events=events, sealed=None))


class _SealedFollower:
    def __init__(self, follower: Follower, log: SealedLog) -> None:
        self._follower, self._log = follower, log
        self._held: Sequence[Recorded] = ()

    @property
    def pending(self) -> int:
        return self._follower.pending

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Recorded]:
        # What was taken is held until it is decrypted: a key that cannot be asked for loses none.
        if not self._held:
            self._held = await self._follower.receive(most=most, wait_s=wait_s)
        opened = await self._log.opened(self._held)
        self._held = ()
        return opened
