"""One run of the archive: write what is old enough, read it back, and purge up to the floor.

    read ──▶ segment ──▶ written once ──▶ read back, verified ──▶ floor ──▶ noted ──▶ purged

It may end anywhere and be run again: a segment is there whole or not at all, a run begins where the
newest segment ends, and nothing is purged that the same run has not read back from the archive.
Only one process at a time does it, by a lease. One that has lost the lease without knowing can do
no harm: of two segments that begin alike the second is refused, and what it may still purge is what
it has verified itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from engine.archive.drop import DropReport, SegmentDrop
from engine.archive.floor import (
    SKEW,
    Bound,
    FloorHold,
    bound_of_lives,
    bound_of_position,
    floor_of,
    oldest_time,
)
from engine.archive.held import first_held
from engine.archive.lives import Lives, decode_lives, encode_lives, note, still_there
from engine.archive.purge import PurgeReport, purge
from engine.reactor.position import Position
from engine.retention.keep_results import note_results
from engine.retention.rules import RetentionHolds
from engine.retention.step import RetentionRun
from engine.retention.store import read_state
from engine.runtime.leases import lease_of
from streams.archive.archive import Archive, first_with, identity
from streams.archive.segment import Manifest, SegmentBuilder, SegmentLimits
from streams.clock import Clock
from streams.errors import DamagedSegment, LeaseLost, OtherArchive, Unavailable
from streams.keys import ARCHIVE_CLAIM, ARCHIVED
from streams.layout import FOLLOWED, Stream
from streams.model.losses import KnownPast, StreamState
from streams.noted import noted
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.ports.states import RawMessage
from streams.wire.messages import parse_commit

READ_MAX: Final = 200
"""Messages that are taken at a time: they are decoded in some 3 ms, and others may run then."""

SILENT_S: Final = 5.0
"""Longest wait for messages that are there, in seconds."""

Tell = Callable[[str, int, int], None]
"""Is told of which stream how many messages are done, and of how many."""


class ArchivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is archived and purged."""

    hot_s: float
    """How long the journal keeps what has ended, in seconds."""
    purges: bool = True
    """Whether what is archived leaves the journal."""
    is_dry: bool = False
    """Whether to read and reckon only."""
    limits: SegmentLimits = SegmentLimits()
    kept_s: float | None = None
    """How long the archive keeps what has ended, in seconds; None: for ever."""
    holds: RetentionHolds = RetentionHolds()
    """What people hold: it stays in the journal, with all that came after it."""


class KnownRows(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables of a stack have."""

    positions: Mapping[str, int] = {}
    """Up to where they know each stream; empty: there are no tables."""
    since: datetime | None = None
    """When the oldest thing of the journal began that they have; None: they have none."""
    letters_since: datetime | None = None
    """When the first dead letter was settled that they have; None: they have none."""


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has done with one stream, or would do."""

    part: str
    messages: int = 0
    """That were archived."""
    segments: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    archived: int = 0
    """The last sequence that is in the archive."""
    first_seq: int = 0
    """Where the journal began before."""
    floor: Bound
    """Up to where it may be purged, and why not further."""
    purged: PurgeReport = PurgeReport()
    missed: int = 0
    """Messages that were gone before they were archived."""


class ArchiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has done."""

    at: datetime
    by: str
    address: str
    """Where the archive is."""
    is_dry: bool = False
    parts: Sequence[PartReport]
    dropped: Sequence[DropReport] = []
    """What was deleted of the archive; nothing, if it keeps all for ever."""


async def archive_once(
    ports: Ports,
    archive: Archive,
    plan: ArchivePlan,
    *,
    rows: KnownRows | None,
    node: str,
    clock: Clock,
    tell: Tell = lambda _part, _done, _of: None,
) -> ArchiveReport | None:
    """Archive the journal, purge it up to its floor, and return what was done.

    None: another process is at it.

    Args:
        rows: what the tables have; None: nobody could say, so nothing is purged, nor deleted.
        node: who does it.

    Raises:
        LeaseLost: another process has begun meanwhile. Nothing is lost; run it again later.
        OtherArchive: the archive is of another stream, or of what this one has lost.
        DamagedSegment: what the archive has is not what was written. Nothing of it was purged.
        UnreadableEvent: a commit cannot be decoded. Nothing from it on was archived.
        Unavailable: the server or the archive was away. Run it again.
    """
    now = clock.now()
    async with lease_of(ports.leases, ARCHIVE_CLAIM, holder=node, clock=clock) as check:
        if check is None:  # guard: archive-one-at-a-time
            return None
        run = _Run(ports, archive, plan, rows, clock, check, tell, now, node)
        parts = await run.done()
        report = ArchiveReport(
            at=now,
            by=node,
            address=archive.store.address,
            is_dry=plan.is_dry,
            parts=parts,
            dropped=await run.dropped(by=node),
        )
        if not plan.is_dry:
            await ports.registry.put(ARCHIVED, msgspec.json.encode(report))
    return report


async def last_report(ports: Ports) -> ArchiveReport | None:
    """Return what the newest run has done, or None if there was none."""
    entry = await ports.registry.get(ARCHIVED)
    if entry is None or entry.value is None:
        return None
    return msgspec.json.decode(entry.value, type=ArchiveReport)


@dataclass
class _Part:
    """One stream, while it is archived."""

    part: str
    state: StreamState
    end: int
    """Everything up to here is in the archive."""
    lives: Lives
    held: Recorded | None = None
    """The first commit of what people hold, of those that are archived."""
    verified: set[str] = field(default_factory=set)
    messages: int = 0
    segments: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    missed: int = 0


@dataclass
class _Run:
    ports: Ports
    archive: Archive
    plan: ArchivePlan
    rows: KnownRows | None
    clock: Clock
    check: Callable[[], None]
    tell: Tell
    now: datetime
    node: str

    async def done(self) -> list[PartReport]:
        stack = self.ports.stack
        parts = [stack.part(Stream.JOURNAL, each) for each in stack.partitions_of(Stream.JOURNAL)]
        archived = [await self._archived(part) for part in parts]
        for each in archived:
            each.held = await self._held(each)
        oldest = oldest_time(
            [each.lives for each in archived], [each.held for each in archived if each.held]
        )
        if self.plan.purges and not self.plan.is_dry:
            await self._note_results()  # guard: results-noted-before-purge
        return [await self._purged(each, oldest) for each in archived]

    async def _note_results(self) -> None:
        """Have it noted which large results stay, of whatever is about to leave the journal."""
        state = await read_state(self.ports, clock=self.clock)
        run = RetentionRun(
            ports=self.ports,
            clock=self.clock,
            by=self.node,
            now=self.now,
            state=state,
            is_dry=False,
            check=self.check,
        )
        await note_results(run)

    async def dropped(self, *, by: str) -> list[DropReport]:
        """Delete the segments that are old enough, and return what was done."""
        if self.plan.kept_s is None or not self.plan.purges or self.rows is None:
            return []
        stack = self.ports.stack
        parts = [stack.part(Stream.JOURNAL, each) for each in stack.partitions_of(Stream.JOURNAL)]
        states = {part: await self.ports.states.of(part) for part in parts}
        # What is gone comes back from nowhere: what is held by now counts.
        now_held = (await read_state(self.ports, clock=self.clock)).holds
        drop = SegmentDrop(
            archive=self.archive,
            before=self.now - timedelta(seconds=self.plan.kept_s),
            rows_since=self.rows.since,
            positions=self.rows.positions,
            states={part: state for part, state in states.items() if state is not None},
            holds=RetentionHolds(self.plan.holds.held | now_held.held),
            by=by,
            at=self.now,
            check=self.check,
            is_dry=self.plan.is_dry,
        )
        return await drop.done()

    async def _archived(self, part: str) -> _Part:
        """Write segments of all that is old enough; return how the stream is then."""
        state = await self.ports.states.of(part)
        if state is None:
            raise Unavailable(f"stream {part}", detail="there is no such stream")
        newest = await self.archive.last(part, state.created)
        here = _Part(part, state, end=max(0, state.first_seq - 1), lives={})
        if newest is not None:
            await self._require_same(here, newest)
            lives = decode_lives(await self.archive.lives(newest))
            here.missed = max(0, here.end - newest.last_seq)
            here.end = max(here.end, newest.last_seq)
            here.lives = still_there(lives, first_seq=state.first_seq)
        follows = newest.last_seq if newest is not None else await self._archived_before(part)
        builder: SegmentBuilder | None = None
        async for message in self._old(here):
            builder = builder or SegmentBuilder(
                self.ports.stack, part, state.created, self.plan.limits
            )
            builder.add(message)
            note(here.lives, parse_commit(message))
            here.end, here.messages = message.seq, here.messages + 1
            if builder.is_full:
                await self._write(here, builder, follows=follows)
                builder, follows = None, here.end
        if builder is not None:
            await self._write(here, builder, follows=follows)
        return here

    async def _archived_before(self, part: str) -> int:
        """Return up to where another archive has a stream, or this one what the stream was before.

        Without that, whoever lacks it would take the first segment for the beginning.
        """
        # guard: archive-begins-where-another-ends
        return (await noted(self.ports)).get(part, KnownPast()).archived

    async def _require_same(self, here: _Part, newest: Manifest) -> None:
        """Raise `OtherArchive` unless the newest segment ends with what the stream has there."""
        part, state, seq = here.part, here.state, newest.last_seq
        detail = f"it goes up to {seq:,}, and the stream ends at {state.last_seq:,}"
        if seq <= state.last_seq:
            if seq < state.first_seq:
                return
            detail = f"they differ at {seq:,}"
            *_, last = [each async for each in self.archive.blocks(newest, after=seq - 1)]
            async with self.ports.states.read(part, after=seq - 1) as reader:
                found = await reader.receive(most=1, wait_s=SILENT_S)
            # guard: archive-of-the-same-stream
            if found and last and identity(found[0]) == identity(last[-1]):
                return
        raise OtherArchive(part, address=self.archive.store.address, detail=detail)

    async def _old(self, here: _Part) -> AsyncIterator[RawMessage]:
        """Yield the messages past the end of the archive that are old enough, in order."""
        border = self.now - timedelta(seconds=self.plan.hot_s)
        begin, last_seq = here.end, here.state.last_seq
        async for messages in self._messages(here.part, begin, last_seq):
            for message in messages:
                if message.at >= border or message.seq > last_seq:  # guard: archive-hot-stays
                    return
                yield message
            self.tell(here.part, messages[-1].seq - begin, last_seq - begin)

    async def _messages(
        self, part: str, after: int, last_seq: int
    ) -> AsyncIterator[Sequence[RawMessage]]:
        """Yield what a stream has past a sequence, up to the batch that has `last_seq`."""
        if after >= last_seq:
            return
        async with self.ports.states.read(part, after=after) as reader:
            seq = after
            while seq < last_seq:
                messages = await reader.receive(most=READ_MAX, wait_s=SILENT_S)
                if not messages:
                    raise Unavailable(f"stream {part}", detail=f"no message after {seq:,}")
                seq = messages[-1].seq
                yield messages

    async def _write(self, here: _Part, builder: SegmentBuilder, *, follows: int) -> None:
        manifest, data = builder.build(encode_lives(here.lives), follows=follows)
        here.segments += 1
        here.raw_bytes += manifest.raw_bytes
        here.stored_bytes += len(data)
        if self.plan.is_dry:
            return
        self.check()
        is_new = await self.archive.create(manifest, data)
        # A lost answer may have been about our own: then it is the same.
        # guard: archive-second-writer-stops
        if not is_new and await self.archive.manifest(manifest.name) != manifest:
            raise LeaseLost(ARCHIVE_CLAIM, revision=0)
        await self.archive.verify(manifest.name)
        here.verified.add(manifest.name)

    async def _purged(self, here: _Part, oldest: datetime | None) -> PartReport:
        floor = await self._floor(here, oldest)
        report = PartReport(
            part=here.part,
            messages=here.messages,
            segments=here.segments,
            raw_bytes=here.raw_bytes,
            stored_bytes=here.stored_bytes,
            archived=here.end,
            first_seq=here.state.first_seq,
            floor=floor,
            missed=here.missed,
        )
        if self.plan.is_dry or not self.plan.purges or floor.seq <= here.state.first_seq:
            return report
        await self._verify(here, floor.seq)
        gone = await purge(
            self.ports, here.part, floor=floor.seq, clock=self.clock, check=self.check
        )
        return msgspec.structs.replace(report, purged=gone)

    async def _verify(self, here: _Part, floor: int) -> None:
        """Read back the segments of earlier runs that have what is about to be purged."""
        names = await self.archive.names(here.part, here.state.created)
        seq = here.state.first_seq
        for name in names[first_with(names, seq) :]:
            if seq >= floor:
                return
            manifest = await self.archive.manifest(name)
            if name not in here.verified:  # guard: archive-verified-before-purge
                self.check()
                await self.archive.verify(name)
            if manifest.first_seq > seq and manifest.follows >= seq:  # guard: archive-purges-no-gap
                raise DamagedSegment(name, detail=f"the one before it, with {seq:,}, is missing")
            seq = manifest.last_seq + 1

    async def _floor(self, here: _Part, oldest: datetime | None) -> Bound:
        bounds = [bound_of_position(here.end, FloorHold.AGE)]
        if (is_open := bound_of_lives(here.lives)) is not None:
            bounds.append(is_open)
        if oldest is not None and self.ports.stack.partitions > 1:
            bounds += await self._since(here, oldest)
        if self.rows is None or self.rows.positions:  # guard: archive-rows-hold
            known = 0 if self.rows is None else self.rows.positions.get(here.part, 0)
            bounds.append(bound_of_position(known, FloorHold.ROWS))
        if await self._is_behind():  # guard: archive-reactor-holds
            bounds.append(bound_of_position(0, FloorHold.REACTOR))
        if (held := here.held) is not None:  # guard: held-stays-in-journal
            about, since = held.subject, held.commit.at
            bounds.append(Bound(seq=held.seq, hold=FloorHold.LEGAL, about=about, since=since))
        bounds += await self._gone_on(here, below=floor_of(bounds).seq)
        return floor_of(bounds)

    async def _is_behind(self) -> bool:
        """Return whether something is not followed up that is as old as what is purged.

        What follows from a commit may need the beginning of its episode, or of the one that has
        caused it. Whatever is younger is about episodes that were open at the end of the archive.
        """
        young = self.now - timedelta(seconds=self.plan.hot_s) + SKEW
        stack = self.ports.stack
        parts = [stack.part(each, nth) for each in FOLLOWED for nth in stack.partitions_of(each)]
        for part in parts:
            position = await Position.read(self.ports, part)
            state = await self.ports.states.of(part)
            if state is None or state.last_seq <= position.written.seq:
                continue
            async with self.ports.states.read(part, after=position.written.seq) as reader:
                found = await reader.receive(most=1, wait_s=SILENT_S)
            if not found or found[0].at < young:  # guard: unfollowed-keeps-its-beginning
                return True
        return False

    async def _since(self, here: _Part, oldest: datetime) -> list[Bound]:
        """Return the bound of what happened here since the oldest open aggregate began anywhere."""
        names = await self.archive.names(here.part, here.state.created)
        for name in names[first_with(names, here.state.first_seq) :]:
            manifest = await self.archive.manifest(name)
            if manifest.last_at < oldest:
                continue
            before = [each for each in manifest.blocks if each.first_at < oldest]
            seq = before[-1].first_seq if before else manifest.first_seq
            return [Bound(seq=seq, hold=FloorHold.ELSEWHERE, since=oldest)]
        return []

    async def _held(self, here: _Part) -> Recorded | None:
        """Return the first commit of what is held, of what is archived and still in the journal."""
        if not self.plan.holds.held:
            return None
        begin, end = here.state.first_seq - 1, here.end
        async for messages in self._messages(here.part, begin, end):
            self.check()
            old = [parse_commit(each) for each in messages if each.seq <= end]
            held = first_held(old, self.plan.holds, stack=self.ports.stack)
            if held is not None:
                return held
        return None

    async def _gone_on(self, here: _Part, *, below: int) -> list[Bound]:
        """Return the bounds of outputs that had ended, and were retried or proposed again since."""
        ended = {
            subject: life
            for subject, life in here.lives.items()
            if life.is_ended and life.seq < below
        }
        newest = await self.ports.log.newest([*ended])
        went_on = {each.subject for each in newest.values() if each.seq > here.end}
        return [
            Bound(seq=life.seq, hold=FloorHold.OPEN, about=subject, since=life.at)
            for subject, life in ended.items()
            if subject in went_on  # guard: archive-retried-output-stays
        ]
