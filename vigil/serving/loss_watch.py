"""Notices that a stream of a stack has lost its past, and ends what runs on it in this process.

One look asks the leaders of the streams of commits, and of one other stream, how those are: an idle
process sends and gets two messages a second for that. It asks about all of them as soon as anybody
has missed one. What is known of a stream is noted in the registry and in the gates, is in the
positions of reactors and rows, and in this memory: whatever was seen of it.

Who notices a loss marks it in the registry, so that every other process of the stack ends, too, and
none starts until a person has run `vigil recover --accept-loss`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from types import MappingProxyType
from typing import Final, NoReturn

import msgspec
import structlog

from engine import telemetry
from engine.runtime.gather import gather_bounded
from engine.runtime.tasks import wait_first
from engine.runtime.watch import follow
from streams.clock import Clock, SystemClock
from streams.errors import RevisionConflict, Unavailable
from streams.keys import LOST, STREAMS, lost_key, published_key
from streams.layout import FOLLOWED
from streams.model.followed import decode_followed
from streams.model.losses import (
    KnownPast,
    Lack,
    LogLost,
    Loss,
    LossMark,
    Notes,
    StreamState,
    begun,
    further,
    keeps_all,
    may_catch_up,
    read_notes,
    what_is_lost,
)
from streams.noted import noted
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry

LOOK_S: Final = 3.0
"""Between two looks, in seconds: with `CONFIRM_S`, a loss is noticed within 4 s."""

CONFIRM_S: Final = 0.5
"""Between a look that finds a loss and the one that confirms it, in seconds."""

CATCH_UP_S: Final = 30.0
"""How long a stream with several copies may seem to end early before it counts as lost, in seconds:
its leader may be repeating what it has acknowledged. Seen in `make chaos-cluster`: 78 messages."""

MARK_S_MAX: Final = 1.0
"""Longest that marking a loss may take, in seconds: the registry itself may be lost."""

LOOKS_IN_FLIGHT_MAX: Final = 16

NOTE_TRIES_MAX: Final = 5
"""Most tries to note what is there while other processes do the same."""

RETRY_S: Final = 1.0
"""Before the registry is watched again, in seconds."""

log = structlog.get_logger("vigil.streams")

_marks: Final = msgspec.json.Decoder(LossMark)


@asynccontextmanager
async def watched_streams(
    ports: Ports,
    *,
    node: str,
    rows: Mapping[str, int] = MappingProxyType({}),
    on_loss: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """Watch the streams of a stack meanwhile; raise `LogLost`, alone or in a group, if one is lost.

    So does whoever else raises it inside: it is marked for other processes. `rows` has the
    positions that the rows know, by stream within the stack. `on_loss` is called at once.
    """
    watch = LossWatch(ports, SystemClock(), node=node, rows=rows, on_loss=on_loss)
    try:
        await watch.begin()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(watch.follow())
            yield
            following.cancel()
    except* LogLost as lost:
        await watch.mark(_first(lost).losses)
        raise


@dataclass
class LossWatch:
    """What one process knows of the streams of a stack."""

    ports: Ports
    clock: Clock
    node: str
    rows: Mapping[str, int] = field(default_factory=dict)
    on_loss: Callable[[], None] = lambda: None
    _known: dict[str, KnownPast] = field(default_factory=dict)
    _seen: dict[str, StreamState] = field(default_factory=dict)
    """Streams as they were when they were whole."""
    _behind_since_s: dict[str, float] = field(default_factory=dict)
    """Since when streams seem to end early, on the monotonic clock."""

    async def begin(self) -> None:
        """Look at every stream, and note those that nobody has noted; raise `LogLost`."""
        ports, parts = self.ports, self.ports.states.parts
        notes, positions = await noted(self.ports), await self._positions()
        for part in parts:
            known = notes.get(part, KnownPast())  # guard: loss-process-knows-others
            # guard: loss-process-knows-rows
            seq = max(known.seq, self.rows.get(part, 0), positions.get(part, 0))
            self._known[part] = msgspec.structs.replace(known, seq=seq)
        found = await self._look_at(parts)
        for bucket in (ports.registry, ports.gates):
            await self._note(bucket, begun(found))

    async def follow(self) -> NoReturn:
        """Look, and listen to what others find, for ever; raise `LogLost`."""
        await wait_first(self._look_for_ever(), self._listen())  # guard: loss-mark-stops-process
        raise AssertionError("neither of them ends")

    async def mark(self, losses: Sequence[Loss]) -> None:
        """Tell every other process of the stack, if the registry can be written."""
        telemetry.streams_lost.set(len(losses), {"stack": self.ports.stack.name})
        for loss in losses:
            mark = LossMark(loss=loss, by=self.node, at=self.clock.now())
            data, key = msgspec.json.encode(mark), lost_key(loss.part)
            with suppress(RevisionConflict, Unavailable, TimeoutError):
                async with self.clock.timeout(MARK_S_MAX):
                    await self.ports.registry.put(key, data, after=0)

    async def _look_for_ever(self) -> NoReturn:
        parts = self.ports.states.parts
        always = [part for part in parts if keeps_all(part)]
        others = cycle([part for part in parts if not keeps_all(part)])
        while True:
            is_missed = await self.ports.states.wait_doubt(within_s=LOOK_S)
            await self._look_at(parts if is_missed else [*always, next(others)])

    async def _look_at(self, parts: Sequence[str]) -> Mapping[str, StreamState]:
        """Return how streams are; raise `LogLost` if two looks in a row find one that has lost."""
        losses = await self._losses(parts)
        if losses:
            await self.clock.sleep(CONFIRM_S)  # guard: loss-needs-two-looks
            again = await self._losses([*losses])
            losses = {part: loss for part, loss in again.items() if loss.lack is losses[part].lack}
        telemetry.streams_lost.set(len(losses), {"stack": self.ports.stack.name})
        if losses:
            raise self._lost([*losses.values()])
        return self._seen

    async def _with_floor(self, part: str, known: KnownPast) -> KnownPast:
        """Return what is known of a stream, with where it begins since it was last purged.

        To be asked after the stream: whoever purges it on purpose notes that before.
        """
        now = (await noted(self.ports)).get(part, KnownPast())
        floor = max(known.floor, now.floor)  # guard: loss-archived-is-not-lost
        return msgspec.structs.replace(known, floor=floor)

    async def _losses(self, parts: Sequence[str]) -> dict[str, Loss]:
        """Return what streams have lost, and note what is known of the others now."""
        lost: dict[str, Loss] = {}

        async def look(part: str) -> None:
            # Before the question: what is acknowledged while it is on its way is not in the answer.
            newest = self.ports.states.newest(part)
            try:
                state = await self.ports.states.of(part)
            except Unavailable:
                return  # No leader answers: the next look.
            known = self._known.get(part, KnownPast())
            known = msgspec.structs.replace(known, seq=max(known.seq, newest))
            loss = what_is_lost(part, known, state)
            if loss is not None and loss.lack is Lack.BEGINS_LATE:
                known = await self._with_floor(part, known)
                loss = what_is_lost(part, known, state)
            if loss is not None:
                if not (may_catch_up(loss, state) and self._is_given_time(part)):
                    lost[part] = loss
            elif state is not None:
                self._behind_since_s.pop(part, None)  # guard: loss-catch-up-anew
                self._known[part], self._seen[part] = further(known, state), state

        await gather_bounded(look, parts, in_flight_max=LOOKS_IN_FLIGHT_MAX)
        return lost

    def _is_given_time(self, part: str) -> bool:
        now_s = self.clock.monotonic_s()
        # guard: loss-catch-up-ends
        return now_s - self._behind_since_s.setdefault(part, now_s) < CATCH_UP_S

    async def _listen(self) -> NoReturn:
        while True:
            with suppress(Unavailable):
                await follow(self.ports.registry.watch(under=LOST), self._hear)
            await self.clock.sleep(RETRY_S)

    async def _hear(self, entries: Sequence[BucketEntry]) -> None:
        losses = [_loss_in(each) for each in entries if each.value is not None]
        if losses:
            raise self._lost(losses)

    def _lost(self, losses: Sequence[Loss]) -> LogLost:
        error = LogLost(self.ports.stack.name, losses)
        log.error("a stream has lost its past", stack_name=error.stack, error=str(error))
        self.on_loss()
        return error

    async def _positions(self) -> Mapping[str, int]:
        stack = self.ports.stack
        parts = [stack.part(each, nth) for each in FOLLOWED for nth in stack.partitions_of(each)]
        found = [await self.ports.gates.get(published_key(part)) for part in parts]
        return {
            part: decode_followed(entry.value).seq
            for part, entry in zip(parts, found, strict=True)
            if entry is not None and entry.value
        }

    async def _note(self, bucket: Bucket, found: Notes) -> None:
        """Add to the notes of a bucket the streams that it lacks."""
        for _ in range(NOTE_TRIES_MAX):
            entry = await bucket.get(STREAMS)
            there = read_notes(_value(entry), None)
            if not found.keys() - there.keys():
                return
            data = msgspec.json.encode({**found, **there})
            with suppress(RevisionConflict):
                await bucket.put(STREAMS, data, after=entry.revision if entry else 0)
                return


def _value(entry: BucketEntry | None) -> bytes | None:
    return entry.value if entry is not None else None


def _loss_in(mark: BucketEntry) -> Loss:
    try:
        return _marks.decode(mark.value or b"").loss
    except msgspec.DecodeError:
        return Loss(part=mark.key.removeprefix(f"{LOST}."), lack=Lack.NOTED)


def _first(lost: ExceptionGroup[LogLost]) -> LogLost:
    first = lost.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
