"""A segment: its bytes, what is found in it, and how damage is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.archive.archive import Archive
from streams.archive.memory import MemoryArchive
from streams.archive.segment import (
    Manifest,
    SegmentBuilder,
    SegmentLimits,
    aggregate_digest,
    read_block,
    segment_name,
    seq_in,
)
from streams.errors import DamagedSegment
from streams.layout import Kind
from streams.ports.states import RawMessage
from streams.subjects import Stack

STACK = Stack("s")
AT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CREATED = "2030-01-01T00:00:00.5Z"
LIMITS = SegmentLimits(messages_max=100, block_bytes=400)


def message(seq: int, name: str = "", *, stack: Stack = STACK, data: bytes = b"{}") -> RawMessage:
    return RawMessage(
        seq=seq,
        subject=stack.episode(name or f"e{seq % 7}"),
        headers={"Vigil-Commit": f"{stack.partitions}.c{seq}"},
        data=data,
        at=AT + timedelta(seconds=seq),
    )


def built(messages, *, stack: Stack = STACK, part="journal", lives=b"none", follows=0):
    builder = SegmentBuilder(stack, part, CREATED, LIMITS)
    for each in messages:
        builder.add(each)
    return builder.build(lives, follows=follows)


async def stored(*segments: tuple[Manifest, bytes], stack: Stack = STACK) -> Archive:
    archive = Archive(MemoryArchive(), stack)
    for manifest, data in segments:
        assert await archive.create(manifest, data)
    return archive


async def test_messages_come_back_exactly_as_they_were():
    strange = RawMessage(
        seq=9, subject="s.episode.>", headers={"a": "ä", "b": ""}, data=bytes(range(256)), at=AT
    )
    messages = [*(message(seq) for seq in range(1, 9)), strange]
    manifest, data = built(messages)
    archive = await stored((manifest, data))

    blocks = [block async for block in archive.blocks(await archive.manifest(manifest.name))]

    assert len(blocks) == 2
    assert [each for block in blocks for each in block] == messages


async def test_the_manifest_says_what_the_segment_has():
    manifest, data = built(message(seq) for seq in range(5, 31))
    archive = await stored((manifest, data))
    found = await archive.manifest(manifest.name)
    assert found == manifest
    assert (found.first_seq, found.last_seq, found.count) == (5, 30, 26)
    assert (found.first_at, found.last_at) == (message(5).at, message(30).at)
    assert found.stored_bytes < len(data)


async def test_messages_past_a_sequence_are_read_without_the_blocks_before():
    manifest, data = built(message(seq) for seq in range(1, 31))
    archive = await stored((manifest, data))
    found = [each.seq async for block in archive.blocks(manifest, after=17) for each in block]
    assert found == [*range(18, 31)]


async def test_one_episode_is_found_by_reading_little():
    manifest, data = built(
        [message(1, "mine"), *(message(seq, f"e{seq}") for seq in range(2, 400))]
    )
    archive = await stored((manifest, data))
    await archive.manifest(manifest.name)
    store = Counting(archive.store)
    archive.store = store

    found = await archive.history(Kind.EPISODE, "mine")

    assert [each.seq for each in found] == [1]
    assert store.bytes < len(data) / 20


class Counting:
    def __init__(self, store):
        self.store, self.bytes = store, 0

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def read(self, name, *, start=0, length=None):
        data = await self.store.read(name, start=start, length=length)
        self.bytes += len(data or b"")
        return data


async def test_an_episode_in_several_segments_is_whole():
    archive = await stored(
        built(message(seq) for seq in range(1, 50)),
        built((message(seq) for seq in range(50, 99)), follows=49),
    )
    found = await archive.history(Kind.EPISODE, "e3")
    assert [each.seq for each in found] == [seq for seq in range(1, 99) if seq % 7 == 3]
    assert await archive.history(Kind.EPISODE, "e8") == []


async def test_an_episode_is_found_that_lived_in_another_layout():
    before, now = Stack("s"), Stack("s", partitions=2)
    part = now.part_of(Kind.EPISODE, "e1")
    archive = await stored(
        built([message(1, "e1", stack=before), message(2, "e2", stack=before)], stack=before),
        built([message(7, "e1", stack=now)], stack=now, part=part),
        stack=now,
    )
    found = await archive.history(Kind.EPISODE, "e1")
    assert [each.seq for each in found] == [1, 7]


async def test_a_commit_that_was_copied_to_another_stream_comes_once():
    before, now = Stack("s"), Stack("s", partitions=2)
    part = now.part_of(Kind.EPISODE, "e1")
    first = message(5, "e1", stack=before)
    copy = RawMessage(
        seq=1, subject=now.episode("e1"), headers=first.headers, data=first.data, at=first.at
    )
    archive = await stored(
        built([first], stack=before), built([copy], stack=now, part=part), stack=now
    )
    assert len(await archive.history(Kind.EPISODE, "e1")) == 1


def places(data: bytes):
    """Return a place in each part of a segment, and some more."""
    return sorted({0, 9, len(data) - 1, len(data) - 9, *range(12, len(data), len(data) // 61)})


async def test_damage_anywhere_is_noticed():
    manifest, data = built(message(seq) for seq in range(1, 60))
    for place in places(data):
        archive = await stored((manifest, data[:place] + b"\xff" + data[place + 1 :]))
        if data[place] == 0xFF:
            continue
        with pytest.raises(DamagedSegment):
            await archive.verify(manifest.name)


async def test_a_segment_that_is_cut_off_anywhere_is_noticed():
    manifest, data = built(message(seq) for seq in range(1, 60))
    for size in (0, 5, *places(data)):
        archive = await stored((manifest, data[:size]))
        with pytest.raises(DamagedSegment):
            await archive.verify(manifest.name)


async def test_a_segment_in_the_place_of_another_is_noticed():
    manifest, data = built(message(seq) for seq in range(1, 9))
    archive = await stored()
    other = segment_name("s", "journal", CREATED, 9)
    await archive.store.create(other, data)
    with pytest.raises(DamagedSegment, match="it is that of"):
        await archive.manifest(other)
    with pytest.raises(DamagedSegment, match="no such file"):
        await archive.verify(manifest.name)


def test_a_block_with_other_messages_is_noticed():
    manifest, _ = built(message(seq) for seq in range(1, 60))
    other, data = built([message(1)])
    (block,) = other.blocks
    with pytest.raises(DamagedSegment, match="another digest"):
        read_block(manifest, manifest.blocks[0], data[block.start : block.start + block.size])


async def test_an_index_that_lacks_an_episode_is_noticed():
    whole, data = built([message(1, "a"), message(2, "b")])
    start, size = whole.index.start, whole.index.size
    archive = await stored((whole, data[:start] + bytes(size) + data[start + size :]))
    assert await archive.history(Kind.EPISODE, "a") == []
    with pytest.raises(DamagedSegment, match="index"):
        await archive.verify(whole.name)


async def test_what_the_writer_noted_comes_back():
    manifest, data = built([message(1)], lives=b"open: none")
    archive = await stored((manifest, data))
    assert await archive.lives(manifest) == b"open: none"


def test_a_segment_needs_a_message():
    with pytest.raises(ValueError, match="at least one"):
        SegmentBuilder(STACK, "journal", CREATED, LIMITS).build(b"", follows=0)


def test_a_name_sorts_as_its_sequence():
    names = [segment_name("s", "journal", CREATED, seq) for seq in (9, 10, 1_000_000)]
    assert sorted(names) == names
    assert seq_in(names[2]) == 1_000_000


def test_an_aggregate_has_one_digest_whatever_the_layout():
    assert aggregate_digest(Kind.EPISODE, "a") != aggregate_digest(Kind.OUTPUT, "a")


def test_a_segment_is_full_by_count_and_by_bytes():
    builder = SegmentBuilder(STACK, "journal", CREATED, SegmentLimits(messages_max=2))
    builder.add(message(1))
    assert not builder.is_full
    builder.add(message(2))
    assert builder.is_full
    large = SegmentBuilder(STACK, "journal", CREATED, SegmentLimits(bytes_max=1_000))
    large.add(message(1, data=b"x" * 1_000))
    assert large.is_full
