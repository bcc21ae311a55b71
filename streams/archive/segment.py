"""A segment of an archive: messages of one stream in the order of their sequences. Pure.

    magic | block, block, … | index | lives | manifest | its length and checksum | magic

A block is a zstd frame of MessagePack: an array of messages, each an array of sequence, subject,
headers, body and time. The index has 12 bytes for each aggregate and each block that has it: 8 of
a digest of the aggregate's kind and key, and the block's number; they are sorted, and the manifest
says where those begin that have the same first byte. So one episode is found by reading the
manifest, one 256th of the index, and the blocks that have it. The manifest is JSON. `lives` is for
who wrote the segment, and no one else needs it.

Numbers are little-endian. Every block has its SHA-256 in the manifest, and the manifest one of all
of them; zstd and MessagePack are all that it takes to read a segment in any language.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import blake2b, sha256
from typing import Final
from zlib import crc32

import msgspec

from streams.errors import BadName, DamagedSegment
from streams.json import UNDECODABLE
from streams.layout import Kind
from streams.ports.states import RawMessage
from streams.subjects import Stack

MAGIC: Final = b"VIGSEG01"
SUFFIX: Final = ".vigseg"

BEGIN_SUFFIX: Final = ".vigbegin"
"""Ends the name of a file that says where the segments of a stream begin."""

TRAILER: Final = struct.Struct("<II8s")
"""The manifest's length, its CRC-32, and the magic: the end of a segment."""

BLOCK_BYTES: Final = 256 * 1024
"""A block ends with the message that brings it to so many bytes. Smaller ones compress worse, and
of larger ones more is read for one episode."""

BUCKETS: Final = 256
"""Parts of the index: one for each first byte of a digest."""

LEVEL: Final = 6
"""Of zstd. Measured on a journal of episodes: see docs/adr/0098-archive-by-segments.md."""

LIVES_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Most that lives may be, in bytes: of millions of aggregates."""

_ENTRY: Final = struct.Struct("<8sI")
_TOKEN: Final = re.compile(r"[^0-9A-Za-z]")
_messages: Final = msgspec.msgpack.Decoder(tuple[RawMessage, ...])


class SegmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a segment ends."""

    messages_max: int = 200_000
    bytes_max: int = 64 * 1024 * 1024
    """Of messages as they are. A segment is made in memory, and so is what is read of it back."""
    block_bytes: int = BLOCK_BYTES


class Section(msgspec.Struct, frozen=True, array_like=True):
    """Where something is in a segment."""

    start: int
    size: int


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Messages that are compressed together."""

    start: int
    size: int
    """Of the frame, in bytes."""
    raw_size: int
    first_seq: int
    count: int
    first_at: datetime
    digest: str
    """SHA-256 of what is in the frame, in hex."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment has."""

    stack: str
    part: str
    """The stream within the stack, or one partition of it."""
    created: str
    """When the stream was made: in one that is made anew the same sequences mean other messages."""
    first_seq: int
    last_seq: int
    count: int
    first_at: datetime
    last_at: datetime
    """When the server stored the first and the last message."""
    follows: int = 0
    """The last sequence of the segment before; 0: this is the first one."""
    digest: str
    """SHA-256 of what is in all blocks, one after the other, in hex."""
    blocks: Sequence[Block]
    index: Section
    buckets: Sequence[int]
    """Which entry of the index is the first of each bucket, and how many there are."""
    lives: Section

    @property
    def name(self) -> str:
        """The file that has it."""
        return segment_name(self.stack, self.part, self.created, self.first_seq)

    @property
    def raw_bytes(self) -> int:
        """How large its messages are, uncompressed."""
        return sum(each.raw_size for each in self.blocks)

    @property
    def stored_bytes(self) -> int:
        """How large they are in their frames."""
        return sum(each.size for each in self.blocks)


_manifests: Final = msgspec.json.Decoder(Manifest)


def folder_of(stack: str, part: str, created: str) -> str:
    """Return what the names of all segments of one stream begin with."""
    return f"{stack}/{part}/{_TOKEN.sub('', created)}"


def segment_name(stack: str, part: str, created: str, first_seq: int) -> str:
    """Return the file of the segment that begins at `first_seq`: there can be one such."""
    return f"{folder_of(stack, part, created)}/{first_seq:020d}{SUFFIX}"


def begin_name(folder: str, seq: int) -> str:
    """Return the file that says that what a stream had before `seq` was deleted on purpose."""
    return f"{folder}/{seq:020d}{BEGIN_SUFFIX}"


def seq_in(name: str) -> int:
    """Return the sequence that the name of a file has: of a segment, its first one."""
    return int(name.rpartition("/")[2].partition(".")[0])


def aggregate_digest(kind: Kind, key: str) -> bytes:
    """Return what the index has an aggregate under, the same in every layout of its stack."""
    return blake2b(f"{kind.value}/{key}".encode(), digest_size=8).digest()


class SegmentBuilder:
    """Takes the messages of one segment, in order."""

    def __init__(self, stack: Stack, part: str, created: str, limits: SegmentLimits) -> None:
        self._stack, self._part, self._created, self._limits = stack, part, created, limits
        self._packer = msgspec.msgpack.Encoder()
        # An extra brings it, and what never archives needs none.
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._waiting: list[RawMessage] = []
        self._waiting_bytes = 0
        self._frames: list[bytes] = []
        self._blocks: list[Block] = []
        self._start = len(MAGIC)
        self._entries: set[bytes] = set()
        self._digest = sha256()
        self._first: RawMessage | None = None
        self._last: RawMessage | None = None
        self.count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return self.count >= self._limits.messages_max or self._bytes >= self._limits.bytes_max

    def add(self, message: RawMessage) -> None:
        """Take the next message."""
        self._first = self._first or message
        self._last = message
        size = len(message.data) + len(message.subject) + 64 * len(message.headers)
        self._waiting.append(message)
        self._waiting_bytes += size
        self._bytes += size
        self.count += 1
        digest = _digest_at(self._stack, message.subject)
        self._entries.add(_ENTRY.pack(digest, len(self._blocks)))
        if self._waiting_bytes >= self._limits.block_bytes:
            self._end_block()

    def build(self, lives: bytes, *, follows: int) -> tuple[Manifest, bytes]:
        """Return the segment of all messages so far, at least one: its manifest and its file.

        `lives` is for the writer of the next one; `follows` ends the one before.
        """
        if self._waiting:
            self._end_block()
        if self._first is None or self._last is None:
            raise ValueError("a segment has at least one message")
        entries = sorted(self._entries)
        index = b"".join(entries)
        packed_lives = self._compressor.compress(lives)
        index_at = self._start
        manifest = Manifest(
            stack=self._stack.name,
            part=self._part,
            created=self._created,
            first_seq=self._first.seq,
            last_seq=self._last.seq,
            count=self.count,
            first_at=self._first.at,
            last_at=self._last.at,
            follows=follows,
            digest=self._digest.hexdigest(),
            blocks=self._blocks,
            index=Section(index_at, len(index)),
            buckets=[bisect_left(entries, bytes((first,))) for first in range(BUCKETS)]
            + [len(entries)],
            lives=Section(index_at + len(index), len(packed_lives)),
        )
        said = msgspec.json.encode(manifest)
        trailer = TRAILER.pack(len(said), crc32(said), MAGIC)
        return manifest, b"".join((MAGIC, *self._frames, index, packed_lives, said, trailer))

    def _end_block(self) -> None:
        raw = self._packer.encode(self._waiting)
        frame = self._compressor.compress(raw)
        self._digest.update(raw)
        block = Block(
            start=self._start,
            size=len(frame),
            raw_size=len(raw),
            first_seq=self._waiting[0].seq,
            count=len(self._waiting),
            first_at=self._waiting[0].at,
            digest=sha256(raw).hexdigest(),
        )
        self._frames.append(frame)
        self._blocks.append(block)
        self._start += len(frame)
        self._waiting, self._waiting_bytes = [], 0


def manifest_size(tail: bytes, *, name: str) -> int:
    """Return how long a manifest is, with what follows it, by the end of its segment."""
    try:
        size, _, magic = TRAILER.unpack(tail[-TRAILER.size :])
    except struct.error as error:
        raise DamagedSegment(name, detail="it is too short") from error
    if magic != MAGIC:
        raise DamagedSegment(name, detail="it does not end as a segment does")
    return int(size) + TRAILER.size


def read_manifest(tail: bytes, *, name: str) -> Manifest:
    """Return the manifest in the end of a segment that has all of it."""
    size = manifest_size(tail, name=name)
    said = tail[-size : -TRAILER.size]
    _, checksum, _ = TRAILER.unpack(tail[-TRAILER.size :])
    # guard: archive-manifest-checked
    if len(tail) < size or crc32(said) != checksum:
        raise DamagedSegment(name, detail="its manifest has another checksum")
    try:
        manifest = _manifests.decode(said)
    except UNDECODABLE as error:
        raise DamagedSegment(name, detail=f"its manifest: {error}") from error
    if manifest.name != name:  # guard: archive-segment-in-its-place
        raise DamagedSegment(name, detail=f"it is that of {manifest.name}")
    return manifest


def read_block(manifest: Manifest, block: Block, frame: bytes) -> Sequence[RawMessage]:
    """Return the messages of a block; raise `DamagedSegment` unless they are those written."""
    return _decoded(manifest, raw_block(manifest, block, frame))


def raw_block(manifest: Manifest, block: Block, frame: bytes) -> bytes:
    """Return what is in the frame of a block, if it is what was written."""
    raw = _decompressed(manifest, frame, most=block.raw_size)
    # guard: archive-block-digest
    if sha256(raw).hexdigest() != block.digest:
        detail = f"the block at {block.start} has another digest"
        raise DamagedSegment(manifest.name, detail=detail)
    return raw


class SegmentCheck:
    """Checks that a file has what its manifest says, block after block."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._stack = manifest, stack_of(manifest)
        self._digest = sha256()
        self._entries: set[bytes] = set()
        self._seq, self._count = manifest.first_seq - 1, 0

    def take(self, number: int, data: bytes) -> None:
        """Check one block of the file `data`; raise `DamagedSegment` if it is not as written."""
        manifest, block = self._manifest, self._manifest.blocks[number]
        raw = raw_block(manifest, block, data[block.start : block.start + block.size])
        self._digest.update(raw)
        for message in _decoded(manifest, raw):
            if not self._seq < message.seq <= manifest.last_seq:
                detail = f"message {message.seq} comes after {self._seq}"
                raise DamagedSegment(manifest.name, detail=detail)
            self._seq, self._count = message.seq, self._count + 1
            self._entries.add(_ENTRY.pack(_digest_at(self._stack, message.subject), number))

    def end(self, data: bytes) -> None:
        """Check what only all blocks together can tell; raise `DamagedSegment`."""
        manifest = self._manifest
        is_whole = (
            self._digest.hexdigest() == manifest.digest
            and (self._count, self._seq) == (manifest.count, manifest.last_seq)
            and data[: len(MAGIC)] == MAGIC
        )
        if not is_whole:
            raise DamagedSegment(manifest.name, detail="it has not all messages that it had")
        index = data[manifest.index.start : manifest.index.start + manifest.index.size]
        # An index that lacks an aggregate would hide its past.
        if index != b"".join(sorted(self._entries)):  # guard: archive-index-verified
            raise DamagedSegment(manifest.name, detail="its index has other aggregates")
        lives = manifest.lives
        read_lives(manifest, data[lives.start : lives.start + lives.size])


def bucket_of(manifest: Manifest, digest: bytes) -> Section:
    """Return where the entries of the index are that begin as `digest` does."""
    first, last = manifest.buckets[digest[0]], manifest.buckets[digest[0] + 1]
    return Section(manifest.index.start + first * _ENTRY.size, (last - first) * _ENTRY.size)


def blocks_with(manifest: Manifest, digest: bytes, bucket: bytes) -> Sequence[Block]:
    """Return the blocks that have an aggregate, by its part of the index."""
    numbers = [number for found, number in _ENTRY.iter_unpack(bucket) if found == digest]
    return [manifest.blocks[number] for number in numbers]


def read_lives(manifest: Manifest, packed: bytes) -> bytes:
    """Return what the writer of the segment noted for the next one."""
    return _decompressed(manifest, packed, most=LIVES_BYTES_MAX)


def messages_of(
    messages: Iterable[RawMessage], stack: Stack, kind: Kind, key: str
) -> list[RawMessage]:
    """Return those of one aggregate, at whatever subject it was in the layout of then."""
    return [each for each in messages if _aggregate_at(stack, each.subject) == (kind, key)]


def stack_of(manifest: Manifest) -> Stack:
    """Return the stack in the layout that it had when the segment was written."""
    return Stack(manifest.stack, _partitions_of(manifest.part))


def _partitions_of(part: str) -> int:
    _, _, token = part.partition("-")
    return int(token.partition("of")[2]) if token else 1


def _decoded(manifest: Manifest, raw: bytes) -> Sequence[RawMessage]:
    try:
        return _messages.decode(raw)
    except UNDECODABLE as error:
        raise DamagedSegment(manifest.name, detail=str(error)) from error


def _decompressed(manifest: Manifest, frame: bytes, *, most: int) -> bytes:
    import zstandard

    try:
        # A frame says how large it becomes: one that says too much is refused before it is.
        if zstandard.frame_content_size(frame) > most:
            raise DamagedSegment(manifest.name, detail="a frame claims to be larger than it was")
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise DamagedSegment(manifest.name, detail=str(error)) from error


def _aggregate_at(stack: Stack, subject: str) -> tuple[Kind, str] | None:
    try:
        return stack.aggregate_of(subject)
    except BadName:  # A stranger's: it is kept as it is.
        return None


def _digest_at(stack: Stack, subject: str) -> bytes:
    found = _aggregate_at(stack, subject)
    return aggregate_digest(*found) if found else blake2b(subject.encode(), digest_size=8).digest()
