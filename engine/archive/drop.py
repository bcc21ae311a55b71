"""Deletes the oldest segments of an archive, once nothing is made of them any more.

    read ──▶ what must stay ──▶ where it begins now: noted in the archive ──▶ files deleted

Segments go from the beginning of a stream on, and only whole. What must stay is what ended too
lately, what the tables have or have yet to read, what is open, what the journal still has, and what
people hold. It may be interrupted anywhere: see `Archive.begin_at`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from engine.archive.floor import SKEW
from engine.archive.held import first_held
from engine.archive.lives import decode_lives
from engine.retention.rules import RetentionHolds
from streams.archive.archive import Archive, StreamSegments
from streams.archive.segment import Manifest
from streams.model.losses import StreamState
from streams.ports.log import Recorded
from streams.wire.messages import parse_commit


class SegmentHold(StrEnum):
    """Why the oldest segment that is left of a stream stays."""

    AGE = "age"
    """What it has ended too lately."""
    ROWS = "rows"
    """The tables have something that is made of it, or do not have all of it yet."""
    OPEN = "open"
    """Something that begins there had not ended when the rest was old enough."""
    JOURNAL = "journal"
    """The journal still has messages of it, or it is the newest one: it says what is open."""
    HELD = "held"
    """A person holds something that is there, or what came of that may be."""


class DropReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which segments of a stream were deleted, or would be."""

    part: str
    folder: str
    """Of the stream as it was made at some time."""
    segments: int = 0
    stored_bytes: int = 0
    begin: int
    """Where its segments begin from then on."""
    since: datetime | None = None
    """When the first message was stored that is left."""
    hold: SegmentHold | None = None
    """Why that stays; None: nothing is left."""


class DroppedFor(msgspec.Struct, frozen=True, kw_only=True):
    """What the archive has of a deletion, for people."""

    by: str
    at: datetime


@dataclass
class _Old:
    """The segments of a stream from its beginning on that may go."""

    stream: StreamSegments
    manifests: list[Manifest] = field(default_factory=list)
    stays: Manifest | None = None
    """The first one that does not go."""
    hold: SegmentHold | None = None

    def keep_from(self, number: int, hold: SegmentHold) -> None:
        if number < len(self.manifests):
            self.stays, self.hold = self.manifests[number], hold
            del self.manifests[number:]


@dataclass(frozen=True, kw_only=True)
class SegmentDrop:
    """One deletion, over all streams of a stack."""

    archive: Archive
    before: datetime
    """What ended before that is old enough."""
    rows_since: datetime | None
    """When the oldest thing began that the tables have; None: they have none, or there are none."""
    positions: Mapping[str, int]
    """Up to where the tables know each stream; empty: there are no tables."""
    states: Mapping[str, StreamState]
    """The streams of the journal that are in use."""
    holds: RetentionHolds
    by: str
    at: datetime
    check: Callable[[], None]
    is_dry: bool

    async def done(self) -> list[DropReport]:
        """Delete what may go of each stream, and return what was done.

        Raises:
            DamagedSegment, UnreadableEvent: nobody can tell what a segment has, so it stays.
        """
        streams = await self.archive.streams()
        old = [await self._old(each) for each in streams]
        newest = max((each.manifests[-1].last_at for each in old if each.manifests), default=None)
        held = [await self._held(each, until=newest) for each in old if newest is not None]
        for each, own in zip(old, held, strict=False):
            times = [other.commit.at for other in held if other is not None and other is not own]
            _keep_since(each, min(times, default=None))
        return [await self._dropped(each) for each in old]

    def _is_in_use(self, stream: StreamSegments) -> bool:
        state = self.states.get(stream.part)
        return state is not None and stream.folder == self.archive.folder_of(
            stream.part, state.created
        )

    async def _old(self, stream: StreamSegments) -> _Old:
        """Return what may go of a stream, but for what is held."""
        found, is_in_use = _Old(stream), self._is_in_use(stream)
        for name in stream.names:
            manifest = await self.archive.manifest(name)
            hold = self._hold(manifest, is_in_use=is_in_use, is_newest=name == stream.names[-1])
            if hold is not None:
                found.stays, found.hold = manifest, hold
                break
            found.manifests.append(manifest)
        if is_in_use and found.manifests:
            # What failed may be tried again, so it counts as open while its beginning was there.
            lives = decode_lives(await self.archive.lives(found.manifests[-1]))
            _keep_seq(found, min((each.seq for each in lives.values()), default=None))
        return found

    def _hold(self, manifest: Manifest, *, is_in_use: bool, is_newest: bool) -> SegmentHold | None:
        if manifest.last_at >= self.before:  # guard: young-segment-stays
            return SegmentHold.AGE
        # guard: segment-of-rows-stays
        if self.rows_since is not None and manifest.last_at >= self.rows_since - SKEW:
            return SegmentHold.ROWS
        if not is_in_use:
            return None
        # guard: unread-segment-stays
        if self.positions and self.positions.get(manifest.part, 0) < manifest.last_seq:
            return SegmentHold.ROWS
        # guard: segment-of-journal-stays
        if is_newest or manifest.last_seq >= self.states[manifest.part].first_seq:
            return SegmentHold.JOURNAL
        return None

    async def _held(self, old: _Old, *, until: datetime) -> Recorded | None:
        """Have what is held stay, and return the first commit of it, if that is so old."""
        if not self.holds.held:
            return None
        stack = self.archive.stack
        for number, name in enumerate(old.stream.names):
            manifest = await self.archive.manifest(name)
            if manifest.first_at > until:
                return None
            async for messages in self.archive.blocks(manifest):
                self.check()
                records = [parse_commit(each) for each in messages]
                if (held := first_held(records, self.holds, stack=stack)) is not None:
                    old.keep_from(number, SegmentHold.HELD)  # guard: held-segment-stays
                    return held
        return None

    async def _dropped(self, old: _Old) -> DropReport:
        stream = old.stream
        begin = old.manifests[-1].last_seq + 1 if old.manifests else stream.begin
        if not self.is_dry and (old.manifests or stream.left):  # guard: left-files-go-later
            self.check()
            said = msgspec.json.encode(DroppedFor(by=self.by, at=self.at))
            await self.archive.begin_at(stream, begin, data=said)
        return DropReport(
            part=stream.part,
            folder=stream.folder,
            segments=len(old.manifests),
            stored_bytes=sum(each.stored_bytes for each in old.manifests),
            begin=begin,
            since=old.stays.first_at if old.stays is not None else None,
            hold=old.hold,
        )


def _keep_seq(old: _Old, seq: int | None) -> None:
    """Have the segment with a sequence stay, and all after it."""
    if seq is not None:
        kept = [each.last_seq >= seq for each in old.manifests]
        if True in kept:  # guard: segment-of-open-stays
            old.keep_from(kept.index(True), SegmentHold.OPEN)


def _keep_since(old: _Old, since: datetime | None) -> None:
    """Have stay what was stored since something held began elsewhere: it may have come of that."""
    if since is not None:
        kept = [each.last_at >= since - SKEW for each in old.manifests]
        if True in kept:  # guard: segment-after-held-stays
            old.keep_from(kept.index(True), SegmentHold.HELD)
