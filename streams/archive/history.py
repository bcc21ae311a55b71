"""The log of a stack with all that it ever had: segments of an archive first, then what is live.

`with_history` gives ports whose log reads so. Only `read` and `follow` go that far back: whatever
is about now, and every append, is the log's alone. A node does not need it: nothing that is open,
and nothing that may still be asked for, leaves the journal.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from streams.archive.archive import Archive, first_with, identity
from streams.archive.restored import read_restored
from streams.archive.segment import Manifest, seq_in
from streams.errors import DamagedSegment, NotInArchive, UnreadableEvent
from streams.keys import ARCHIVED
from streams.layout import Kind, Stream
from streams.model.events import EpisodeOpened, WorkflowStarted
from streams.model.losses import EarlierStream, KnownPast
from streams.noted import noted
from streams.ports.all import Ports
from streams.ports.log import START, Commit, EventLog, Follower, Recorded
from streams.ports.states import RawMessage
from streams.wire.messages import parse_commit

_BEGINNINGS: Final = (EpisodeOpened, WorkflowStarted)
"""Events that begin a past. A proposal of an output may follow earlier ones."""

_NOW: Final = sys.maxsize
"""Up to where the stream has its own messages that is there now."""

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
        reader = await self._reader(stream, partition, after=START) if first > 1 else None
        begins = await reader.first_seq() if reader is not None else None
        return first if begins is None else begins

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `EventLog.page`.

        Raises:
            NotInArchive: messages past `after` were archived, and this archive lacks them.
        """
        first = await self._log.first_seq(stream, partition=partition)
        reader = await self._reader(stream, partition, after=after) if after + 1 < first else None
        if reader is not None:
            part, pages = reader.part, self._pages.get(reader.part)
            if pages is None or pages.position != after:
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

        reader = None
        if state is not None and after + 1 < state.first_seq:
            reader = await self._reader(Stream.JOURNAL, partition, after=after)
        if state is None or reader is None:
            async with live(after) as follower:
                yield follower
            return
        async with AsyncExitStack() as opened:
            yield _HistoryFollower(self._ports, reader, live, opened, head=state.last_seq)

    async def _reader(self, stream: Stream, partition: int, *, after: int) -> _SegmentReader | None:
        """Return a reader of the archive that has what is past `after`; None: no archive has it.

        Raises:
            NotInArchive: an archive has it, and none is named.
        """
        part = self._ports.stack.part(stream, partition)
        if stream is not Stream.JOURNAL:
            return None
        known = await self._known(part)
        state = await self._ports.states.of(part) if known.archived > after else None
        if state is None:
            return None
        archive = await self._find()
        if archive is None:  # guard: history-is-no-half-past
            detail = f"its messages up to {state.first_seq - 1:,} are in an archive; {_WHERE}"
            raise NotInArchive(part, detail=detail)
        streams = (*known.continues, EarlierStream(created=state.created, seq=_NOW))
        return _SegmentReader(archive, part, streams, after)

    async def _known(self, part: str) -> KnownPast:
        """Return what is noted of a stream."""
        return (await noted(self._ports)).get(part, KnownPast())

    async def _past(self, kind: Kind, key: str) -> Sequence[RawMessage]:
        restored = await read_restored(self._ports, kind, key)
        archive = None if restored else await self._find()
        if archive is None:
            return restored
        known = await self._known(self._ports.stack.part_of(kind, key))
        return await archive.history(kind, key, continued=known.continues)


def _may_lack(kind: Kind, live: Sequence[Recorded]) -> bool:
    """Return whether an aggregate may have had commits before those that are live."""
    return not live or kind is Kind.OUTPUT or not isinstance(live[0].commit.events[0], _BEGINNINGS)


class _SegmentReader:
    """A position in the segments of one stream, and of those that it continues."""

    def __init__(
        self, archive: Archive, part: str, streams: Sequence[EarlierStream], after: int
    ) -> None:
        self._archive, self.part, self._streams = archive, part, streams
        self.position = after
        """Everything up to here was returned, or was never in the stream."""
        self._segment: Manifest | None = None
        self._up_to = START
        """Up to where that segment is of the past of the stream."""

    async def first_seq(self) -> int | None:
        """Return where the oldest segment begins; None: there is none."""
        for stream in self._streams:
            for name in await self._archive.names(self.part, stream.created):
                return seq_in(name)
        return None

    async def read(self) -> Sequence[RawMessage] | None:
        """Return the next messages; None: no segment has more.

        What it raises changes nothing: read again.
        """
        while True:
            self._segment = self._segment or await self._next()
            if self._segment is None:
                return None
            block = await self._archive.next_block(self._segment, after=self.position)
            messages = [each for each in block if each.seq <= self._up_to]
            if messages:
                self.position = messages[-1].seq
                return messages
            self.position = max(self.position, min(self._segment.last_seq, self._up_to))
            self._segment = None

    async def _next(self) -> Manifest | None:
        """Return the segment that has what is past the position."""
        for stream in self._streams:
            self._up_to = stream.seq
            found = await self._next_of(stream)
            if found is not None:
                return found
        return None

    async def _next_of(self, stream: EarlierStream) -> Manifest | None:
        streams = await self._archive.streams(self.part, stream.created)
        names = [name for each in streams for name in each.names]
        if not names or stream.seq <= self.position:
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
