"""Reads, writes and deletes the segments of one stack in an archive.

The segments of a stream are deleted from its beginning on. Where they begin from then on is noted
in a file of its own first, and what is before that belongs to the archive no more. So whoever dies
while files are deleted leaves some that nobody reads, and who deletes next takes them along.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import chain, groupby
from typing import Final

import msgspec

from streams.archive import segment
from streams.archive.segment import (
    BEGIN_SUFFIX,
    SUFFIX,
    Block,
    Manifest,
    Section,
    begin_name,
    folder_of,
    seq_in,
)
from streams.errors import DamagedSegment
from streams.layout import Kind
from streams.model.losses import EarlierStream
from streams.ports.archive import ArchiveStore
from streams.ports.states import RawMessage
from streams.subjects import Stack
from streams.wire.messages import COMMIT_HEADER

TAIL_BYTES: Final = 64 * 1024
"""What is read first of a segment: nearly always its whole manifest."""

READS_IN_FLIGHT_MAX: Final = 16
"""Segments that are looked through at a time for one aggregate."""

MANIFESTS_KEPT_MAX: Final = 512
"""Manifests that are kept in memory, at some 20 KB each. A segment never changes."""


class Archive:
    """The segments of one stack."""

    def __init__(self, store: ArchiveStore, stack: Stack) -> None:
        self.store, self.stack = store, stack
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()

    async def names(self, part: str = "", created: str = "") -> Sequence[str]:
        """Return the files of all segments; of one stream, as it was made at `created`, if named.

        Those of one stream are in the order of their sequences.
        """
        return [name for each in await self.streams(part, created) for name in each.names]

    async def streams(self, part: str = "", created: str = "") -> Sequence[StreamSegments]:
        """Return what there is of each stream; of one, as it was made at `created`, if named."""
        under = self.folder_of(part, created) if part else self.stack.name
        names = await self._files(under)
        return [
            _segments(folder, list(files))
            for folder, files in groupby(names, key=lambda name: name.rpartition("/")[0])
        ]

    def folder_of(self, part: str, created: str) -> str:
        """Return the folder of a stream, as it was made at `created`."""
        return folder_of(self.stack.name, part, created)

    async def begin_at(self, stream: StreamSegments, seq: int, *, data: bytes) -> None:
        """Delete the segments of a stream that are before `seq`, where one ends.

        It may be interrupted anywhere, and done again. `data` says who does it, for people.
        """
        folder = stream.folder
        await self.store.create(begin_name(folder, seq), data)  # guard: archive-begin-noted-first
        for name in await self._files(folder):
            if seq_in(name) < seq:
                await self.store.delete(name)

    async def last(self, part: str, created: str) -> Manifest | None:
        """Return the manifest of the newest segment of a stream, or None."""
        names = await self.names(part, created)
        return await self.manifest(names[-1]) if names else None

    async def manifest(self, name: str) -> Manifest:
        """Return the manifest of a segment; raise `DamagedSegment` if the file has none."""
        kept = self._manifests.get(name)
        if kept is not None:
            self._manifests.move_to_end(name)
            return kept
        tail = await self._read(name, -TAIL_BYTES, None)
        size = segment.manifest_size(tail, name=name)
        if size > len(tail):
            tail = await self._read(name, -size, None)
        manifest = self._manifests[name] = segment.read_manifest(tail, name=name)
        if len(self._manifests) > MANIFESTS_KEPT_MAX:
            self._manifests.popitem(last=False)
        return manifest

    async def create(self, manifest: Manifest, data: bytes) -> bool:
        """Write a segment; return False if there is another one that begins where it does."""
        return await self.store.create(manifest.name, data)

    async def verify(self, name: str) -> Manifest:
        """Read all of a segment back, and return its manifest.

        Raises:
            DamagedSegment: it is not what was written.
        """
        data = await self._read(name, 0, None)
        manifest = segment.read_manifest(data, name=name)
        check = segment.SegmentCheck(manifest)
        for number in range(len(manifest.blocks)):
            check.take(number, data)  # guard: archive-read-back
            await asyncio.sleep(0)  # A block takes some milliseconds: others may run in between.
        check.end(data)
        return manifest

    async def lives(self, manifest: Manifest) -> bytes:
        """Return what the writer of a segment noted for the next one."""
        return segment.read_lives(manifest, await self._section(manifest, manifest.lives))

    async def blocks(
        self, manifest: Manifest, *, after: int = 0
    ) -> AsyncGenerator[Sequence[RawMessage], None]:
        """Yield the messages past a sequence of a segment, as many at a time as a block has."""
        blocks = manifest.blocks
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            if following is None or following.first_seq > after + 1:
                messages = await self._block(manifest, block)
                yield [each for each in messages if each.seq > after]

    async def next_block(self, manifest: Manifest, *, after: int) -> Sequence[RawMessage]:
        """Return the next messages of a segment past a sequence, at most a block; none: it ends."""
        async with aclosing(self.blocks(manifest, after=after)) as blocks:
            async for messages in blocks:
                if messages:
                    return messages
        return ()

    async def history(
        self, kind: Kind, key: str, *, continued: Sequence[EarlierStream] = ()
    ) -> Sequence[RawMessage]:
        """Return what segments have of an aggregate, each commit once, oldest first.

        Also of streams that are no longer in use: a stack may have had other partitions before, or
        a stream may have been made anew. Of those that were `continued` by one that was restored,
        only what that has, too; segments of that one say so as well, once there are any.
        """
        names = [name for name in await self.names() if self._may_have(name, kind, key)]
        ends = await self._ends()
        ends |= {(self.stack.part_of(kind, key), each.created): each.seq for each in continued}
        found: list[tuple[Manifest, Sequence[RawMessage]]] = []
        for begin in range(0, len(names), READS_IN_FLIGHT_MAX):
            some = names[begin : begin + READS_IN_FLIGHT_MAX]
            found += await asyncio.gather(*(self._of(name, kind, key) for name in some))
        of_streams = [
            [
                message
                for _, messages in group
                for message in messages
                if message.seq <= ends.get(stream, message.seq)  # guard: lost-future-is-no-past
            ]
            for stream, group in groupby(found, key=lambda each: (each[0].part, each[0].created))
        ]
        ordered = sorted((each for each in of_streams if each), key=lambda each: each[0].at)
        once: dict[str, RawMessage] = {}
        for each in chain.from_iterable(ordered):
            once.setdefault(identity(each), each)  # guard: archive-commit-once
        return [*once.values()]

    async def _ends(self) -> dict[tuple[str, str], int]:
        """Return up to where streams are past of which others have segments that go on with them.

        By stream and when it was made.
        """
        of_parts: defaultdict[str, list[StreamSegments]] = defaultdict(list)
        for each in await self.streams():
            if each.names:
                of_parts[each.part].append(each)
        ends: dict[tuple[str, str], int] = {}
        for part, streams in of_parts.items():
            if len(streams) > 1:
                firsts = [(await self.manifest(each.names[0]), each.begin) for each in streams]
                end = sys.maxsize
                for first, begin in sorted(firsts, key=lambda each: each[0].created, reverse=True):
                    ends[part, first.created] = end
                    # Where old segments were dropped, the first one that is left follows those.
                    if first.follows and begin == 1:
                        end = min(end, first.follows)  # guard: archived-future-is-no-past
        return ends

    def _may_have(self, name: str, kind: Kind, key: str) -> bool:
        """Return whether a segment is of the stream that has an aggregate, or of another layout."""
        part = name.split("/")[1]
        ours = {
            self.stack.part(stream, each)
            for stream in (self.stack.holder_of(kind),)
            for each in self.stack.partitions_of(stream)
        }
        return part == self.stack.part_of(kind, key) or part not in ours

    async def _of(self, name: str, kind: Kind, key: str) -> tuple[Manifest, Sequence[RawMessage]]:
        manifest = await self.manifest(name)
        digest = segment.aggregate_digest(kind, key)
        place = segment.bucket_of(manifest, digest)
        bucket = await self._section(manifest, place) if place.size else b""
        messages: list[RawMessage] = []
        for block in segment.blocks_with(manifest, digest, bucket):
            in_block = await self._block(manifest, block)
            messages += segment.messages_of(in_block, segment.stack_of(manifest), kind, key)
        return manifest, messages

    async def _block(self, manifest: Manifest, block: Block) -> Sequence[RawMessage]:
        frame = await self._section(manifest, Section(block.start, block.size))
        return segment.read_block(manifest, block, frame)

    async def _files(self, under: str) -> Sequence[str]:
        names = await self.store.names(under)
        return [name for name in names if name.endswith((SUFFIX, BEGIN_SUFFIX))]

    async def _section(self, manifest: Manifest, section: Section) -> bytes:
        data = await self._read(manifest.name, section.start, section.size)
        if len(data) != section.size:
            raise DamagedSegment(manifest.name, detail="it is too short")
        return data

    async def _read(self, name: str, start: int, length: int | None) -> bytes:
        data = await self.store.read(name, start=start, length=length)
        if data is None:
            raise DamagedSegment(name, detail="there is no such file")
        return data


class StreamSegments(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive has of one stream, as it was made at some time."""

    folder: str
    begin: int
    """What was before this sequence was deleted on purpose; 1: nothing was."""
    names: Sequence[str]
    """The files of its segments, in the order of their sequences."""
    left: Sequence[str]
    """Files that were to be deleted and are still there."""

    @property
    def part(self) -> str:
        """The stream within its stack, or one partition of it."""
        return self.folder.split("/")[1]


def _segments(folder: str, files: Sequence[str]) -> StreamSegments:
    begins = [seq_in(each) for each in files if each.endswith(BEGIN_SUFFIX)]
    begin = max(begins, default=1)
    segments = [each for each in files if each.endswith(SUFFIX)]
    return StreamSegments(
        folder=folder,
        begin=begin,
        # guard: archive-begins-where-noted
        names=[each for each in segments if seq_in(each) >= begin],
        left=[each for each in files if seq_in(each) < begin],
    )


def first_with(names: Sequence[str], seq: int) -> int:
    """Return the index in `names`, of one stream, of the segment that has `seq`, if any has it."""
    before = [number for number, name in enumerate(names) if seq_in(name) <= seq]
    return before[-1] if before else 0


def identity(message: RawMessage) -> str:
    """Return what tells a commit from all others, also in a copy that is in another stream."""
    return message.headers.get(COMMIT_HEADER) or f"{message.subject}@{message.seq}"
