"""The log of a stack with all that it ever had: segments of an archive first, then what is live.

`with_history` gives ports whose log reads so. Only `read` and `follow` go that far back: whatever
is about now, and every append, is the log's alone. A node does not need it: nothing that is open,
and nothing that may still be asked for, leaves the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from streams.archive.archive import Archive, first_with, identity
from streams.archive.restored import read_restored
from streams.archive.segment import Manifest
from streams.errors import DamagedSegment, NotInArchive, UnreadableEvent
from streams.keys import ARCHIVED, STREAMS
from streams.layout import Kind, Stream
from streams.model.events import EpisodeOpened, WorkflowStarted
from streams.model.losses import read_notes
from streams.ports.all import Ports
from streams.ports.log import START, Commit, EventLog, Follower, Recorded
from streams.ports.states import RawMessage
from streams.wire.messages import parse_commit

_BEGINNINGS: Final = (EpisodeOpened, WorkflowStarted)
"""Events that begin a past. A proposal of an output may follow earlier ones."""

_WHERE: Final = "name the archive in [archive] of vigil.toml"


FindArchive: TypeAlias = Callable[[], Awaitable[Archive | None]]
"""Returns the archive of a stack, which is opened only when it is needed; None: nobody named it."""


def with_history(ports: Ports, find: FindArchive) -> Ports:
    """Return `ports` whose log reads what was archived, too; without one, what was restored."""
    return replace(ports, log=HistoryLog(ports, find))


class HistoryLog:
    """See `EventLog`: `read` and `follow` go back to the beginning."""

    def __init__(self, ports: Ports, find: FindArchive) -> None:
        self._ports, self._find = ports, find
        self._pages: dict[str, _SegmentPages] = {}
        self._log: EventLog = ports.log

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        """See `EventLog.append`."""
        return await self._log.append(subject, commit, after=after)

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        """See `EventLog.read`. What was archived has the sequences that it had then."""
        live = await self._log.read(subject, after=after)
        kind, key = self._ports.stack.aggregate_of(subject)
        is_journal = self._ports.stack.holder_of(kind) is Stream.JOURNAL
        # guard: history-looks-only-back
        if after != START or not is_journal or not _may_lack(kind, live):
            return live
        # Not by what is noted of its stream: that is another one since the stack has been spread
        # over more.
        if await self._ports.registry.get(ARCHIVED) is None:
            return live
        past = await self._past(kind, key)
        ours = {each.commit.id for each in live}
        kept = [parse_commit(each) for each in past if identity(each) not in ours]
        before = await self._log.opened(kept)  # guard: archived-commit-decrypted
        # It may have been at another subject, when the stack had other partitions.
        return [*(msgspec.structs.replace(each, subject=subject) for each in before), *live]

    async def last(self, subject: str) -> Recorded | None:
        """See `EventLog.last`."""
        return await self._log.last(subject)

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        """See `EventLog.newest`."""
        return await self._log.newest(subjects)

    async def subjects(self, kind: Kind) -> Sequence[str]:
        """See `EventLog.subjects`."""
        return await self._log.subjects(kind)

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        """See `EventLog.at`."""
        return await self._log.at(seq, stream, partition=partition)

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        """See `EventLog.head`."""
        return await self._log.head(stream, partition=partition)

    async def opened(self, records: Sequence[Recorded]) -> Sequence[Recorded]:
        """See `EventLog.opened`."""
        return await self._log.opened(records)

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `EventLog.first_seq`: that of the archive, if it has what is before the stream."""
        first = await self._log.first_seq(stream, partition=partition)
        opened = await self._archive_of(stream, partition, after=0) if first > 1 else None
        if opened is None:
            return first
        archive, part, created = opened
        names = await archive.names(part, created)
        if not names:
            return first
        manifest = await archive.manifest(names[0])
        return manifest.first_seq if manifest.follows else 1

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `EventLog.page`; without an archive, of what is live.

        Raises:
            NotInArchive: the archive ends before the stream begins.
        """
        first = await self._log.first_seq(stream, partition=partition)
        opened = (
            await self._archive_of(stream, partition, after=after) if after + 1 < first else None
        )
        if opened is not None:
            archive, part, created = opened
            pages = self._pages.get(part)
            if pages is None or pages.position != after:
                reader = _SegmentReader(archive, part, created, after)
                pages = self._pages[part] = _SegmentPages(reader)
            if found := await pages.take(up_to=up_to, most=most):
                return await self._log.opened(found)
            _require_joined(part, reached=pages.reached, first_seq=min(first, up_to + 1))
        return await self._log.page(
            stream, after=after, up_to=up_to, most=most, partition=partition
        )

    def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AbstractAsyncContextManager[Follower]:
        """See `EventLog.follow`.

        Raises on entering, and later where segments end:
            NotInArchive: messages past `after` were archived, and this archive lacks them.
        """
        if stream is not Stream.JOURNAL:
            return self._log.follow(stream, after=after, partition=partition)
        return self._follow(after, partition)

    @asynccontextmanager
    async def _follow(self, after: int, partition: int) -> AsyncIterator[Follower]:
        part = self._ports.stack.part(Stream.JOURNAL, partition)
        state = await self._ports.states.of(part)

        def live(position: int) -> AbstractAsyncContextManager[Follower]:
            return self._log.follow(Stream.JOURNAL, after=position, partition=partition)

        if state is None or after + 1 >= state.first_seq or await self._archived(part) <= after:
            async with live(after) as follower:
                yield follower
            return
        archive = await self._find()
        if archive is None:
            detail = f"its messages up to {state.first_seq - 1:,} are in an archive; {_WHERE}"
            raise NotInArchive(part, detail=detail)
        async with AsyncExitStack() as opened:
            reader = _SegmentReader(archive, part, state.created, after)
            yield _HistoryFollower(self._ports, reader, live, opened, head=state.last_seq)

    async def _archive_of(
        self, stream: Stream, partition: int, *, after: int
    ) -> tuple[Archive, str, str] | None:
        """Return the archive that may have messages past `after`, and which stream they are of."""
        part = self._ports.stack.part(stream, partition)
        if stream is not Stream.JOURNAL or await self._archived(part) <= after:
            return None
        state, archive = await self._ports.states.of(part), await self._find()
        return None if state is None or archive is None else (archive, part, state.created)

    async def _archived(self, part: str) -> int:
        """Return up to where the messages of a stream may be in an archive alone."""
        registry, gates = [
            await bucket.get(STREAMS) for bucket in (self._ports.registry, self._ports.gates)
        ]
        notes = read_notes(
            registry.value if registry is not None else None,
            gates.value if gates is not None else None,
        )
        known = notes.get(part)
        return known.archived if known is not None else 0

    async def _past(self, kind: Kind, key: str) -> Sequence[RawMessage]:
        restored = await read_restored(self._ports, kind, key)
        archive = None if restored else await self._find()
        return restored if archive is None else await archive.history(kind, key)


def _may_lack(kind: Kind, live: Sequence[Recorded]) -> bool:
    """Return whether an aggregate may have had commits before those that are live."""
    return not live or kind is Kind.OUTPUT or not isinstance(live[0].commit.events[0], _BEGINNINGS)


class _SegmentReader:
    """A position in the segments of one stream."""

    def __init__(self, archive: Archive, part: str, created: str, after: int) -> None:
        self._archive, self.part, self._created = archive, part, created
        self.position = after
        """Everything up to here was returned, or was never in the stream."""
        self._segment: Manifest | None = None

    async def read(self) -> Sequence[RawMessage] | None:
        """Return the next messages; None: no segment has more.

        What it raises changes nothing: read again.
        """
        while True:
            self._segment = self._segment or await self._next()
            if self._segment is None:
                return None
            messages = await self._archive.next_block(self._segment, after=self.position)
            if messages:
                self.position = messages[-1].seq
                return messages
            self._segment = None

    async def _next(self) -> Manifest | None:
        """Return the segment that has what is past the position."""
        streams = await self._archive.streams(self.part, self._created)
        names = [name for each in streams for name in each.names]
        if not names:
            return None
        begin = max(each.begin for each in streams)
        self.position = max(self.position, begin - 1)  # guard: archive-read-from-its-begin
        number = first_with(names, self.position + 1)
        manifest = await self._archive.manifest(names[number])
        if manifest.last_seq <= self.position:
            if number + 1 == len(names):
                return None
            manifest = await self._archive.manifest(names[number + 1])
        # guard: archive-missing-segment-noticed
        if manifest.first_seq > self.position + 1 and manifest.follows > self.position:
            detail = f"the one before it, which ended at {manifest.follows:,}, is missing"
            raise DamagedSegment(manifest.name, detail=detail)
        return manifest


class _SegmentPages:
    """Pages of the segments of one stream, one after the other."""

    def __init__(self, reader: _SegmentReader) -> None:
        self._reader = reader
        self._waiting: deque[RawMessage] = deque()
        self.position = reader.position
        """The last one that was returned, or where it began."""

    @property
    def reached(self) -> int:
        """Up to where the segments have been read."""
        return self._reader.position

    async def take(self, *, up_to: int, most: int) -> Sequence[Recorded]:
        """Return the next commits up to `up_to`; none: no segment has more of them."""
        if not self._waiting:
            self._waiting.extend(await self._reader.read() or ())
        taken: list[Recorded] = []
        while self._waiting and len(taken) < most and self._waiting[0].seq <= up_to:
            try:
                taken.append(parse_commit(self._waiting[0]))
            except UnreadableEvent:
                if taken:
                    break
                raise
            self.position = self._waiting.popleft().seq
        return taken


def _require_joined(part: str, *, reached: int, first_seq: int) -> None:
    """Raise `NotInArchive` if there is something between the archive and the stream."""
    if first_seq > reached + 1:  # guard: archive-reaches-the-stream
        detail = f"it begins at {first_seq:,}, and the archive ends at {reached:,}"
        raise NotInArchive(part, detail=f"{detail}; {_WHERE} that has what is between")


class _HistoryFollower:
    """See `Follower`: segments, for as long as there are more, and then the stream."""

    def __init__(
        self,
        ports: Ports,
        reader: _SegmentReader,
        live: Callable[[int], AbstractAsyncContextManager[Follower]],
        opened: AsyncExitStack,
        *,
        head: int,
    ) -> None:
        self._ports, self._reader, self._live, self._opened = ports, reader, live, opened
        self._head = head
        self._waiting: deque[RawMessage] = deque()
        self._taken: list[Recorded] = []
        """Kept until it is decrypted: a key that cannot be asked for loses none."""
        self._follower: Follower | None = None
        self._position = reader.position

    @property
    def pending(self) -> int:
        """See `Follower.pending`."""
        if self._follower is not None:
            return self._follower.pending
        return max(0, self._head - self._position)

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Recorded]:
        """See `Follower.receive`."""
        if self._follower is None and not self._waiting and not self._taken:
            messages = await self._reader.read()
            if messages is None:
                await self._go_live()
            else:
                self._waiting.extend(messages)
        if self._follower is not None:
            return await self._follower.receive(most=most, wait_s=wait_s)
        while self._waiting and len(self._taken) < most:
            try:
                self._taken.append(parse_commit(self._waiting[0]))
            except UnreadableEvent:
                if self._taken:
                    break
                raise
            self._position = self._waiting.popleft().seq
        opened = await self._ports.log.opened(self._taken)
        self._taken = []
        return opened

    async def _go_live(self) -> None:
        part, position = self._reader.part, self._reader.position
        state = await self._ports.states.of(part)
        if state is not None:
            _require_joined(part, reached=position, first_seq=state.first_seq)
        self._follower = await self._opened.enter_async_context(self._live(position))
