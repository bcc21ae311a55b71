"""The sources of a projector, as batches of row changes: journal, state, claims and others.

A `SourceBatch` has the changes for some messages, and the position that the checkpoint moves to
with them. A transaction costs as much as a hundred rows, so messages are gathered: the first after
a pause is a batch of its own, at once; the next ones follow `GATHER_S` later, together. When many
come they gather for up to `GATHERINGS_MAX` times as long. While full batches wait, there is no
pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final, Protocol

import msgspec

from projections import claims, refusals
from projections.project import AggregateFolds
from projections.rows import RowBatch, arrange
from streams.clock import Clock
from streams.errors import Unavailable, UnreadableEvent
from streams.layout import Stream
from streams.model.losses import Lack, LogLost, Loss, ends_early, may_catch_up
from streams.ports.all import Ports
from streams.ports.leases import ClaimWatch
from streams.ports.log import Follower, Recorded
from streams.subjects import Stack

MESSAGES_MAX: Final = 2_000
"""Most messages in one transaction: several changes of one row are written once. A rebuild in
transactions of 500 takes half again as much of Postgres (measured)."""

MESSAGES_AT_ONCE: Final = 100
"""Messages folded before other tasks of the loop may run: under 1 ms."""

GATHER_S: Final = 0.05
"""Least time between two batches that are not full, in seconds: how late a row may be, unless many
commits come."""

MANY: Final = 20
"""So many messages within `GATHER_S` are many: a batch of fewer is not worth less of a wait."""

GATHERINGS_MAX: Final = 5
"""How many times `GATHER_S` commits gather when many come. With 64 episodes of five steps in flight
Postgres spends half as much on each, and the node a tenth less (measured)."""

ENOUGH: Final = MESSAGES_MAX // 2
"""A batch of so many messages gathers no longer: more would hardly make one cheaper."""

CLAIMS_GATHER_S: Final = 0.25
"""The same for claims: most of them are given up within less, and are then one row change and not
two. The projector and Postgres spend a tenth less on an episode with one step (measured). When many
come, `GATHERINGS_MAX` times as long saves a tenth more of that."""

GLEAN_S_MAX: Final = 0.1
"""Longest time to gather one batch, in seconds: ten times what a full one of ordinary messages
takes. It bounds the memory for very large ones."""

COMING_S: Final = 0.01
"""Longest wait for messages that the server has announced, in seconds."""

REFUSALS_LOOK_S: Final = 2.0
"""Between two looks for refusals, in seconds: nodes store them once a second, and nobody waits for
their rows."""

FORGET_S: Final = 60.0
"""Between two deletions of refusals that are too old, in seconds."""

SILENCE_S: Final = 5.0
"""Longest wait for a message before looking again, in seconds."""


class SourceBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The row changes for some messages."""

    batches: Sequence[RowBatch]
    position: int
    mark: str = ""
    """Identifies the commit at `position`; empty: unknown."""
    events: int
    pending: int
    """Messages that are known to wait behind these."""


class BatchReader(Protocol):
    """A source that is being followed."""

    async def receive(self) -> SourceBatch | None:
        """Return the next batch, or None after `SILENCE_S` without messages.

        Raises:
            UnreadableEvent: the next message cannot be decoded. It stays the next one.
        """


class BatchSource(Protocol):
    """Something to follow."""

    @property
    def projection(self) -> str:
        """Names its checkpoint."""

    def open(self, *, after: int, mark: str) -> AbstractAsyncContextManager[BatchReader]:
        """Return a reader of what comes after a position.

        Raises:
            LogLost: the stream has no such position, or not `mark` there.
        """


class RowFold(Protocol):
    """Makes row changes of some commits."""

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it cannot be one, and is left out."""

    def batches(self) -> Sequence[RowBatch]:
        """Return the statements that all of them ask for, in order."""


class LogSource:
    """Commits of one stream, or of one partition of it."""

    def __init__(
        self,
        ports: Ports,
        stream: Stream,
        partition: int,
        *,
        clock: Clock,
        fold: Callable[[Stack], RowFold] = AggregateFolds,
    ) -> None:
        """`fold` makes what takes the commits of one batch, for the rows of a stack."""
        self._ports = ports
        self._stream = stream
        self._partition = partition
        self._clock = clock
        self._fold = fold

    @property
    def projection(self) -> str:
        """Return the name of the stream or the partition within the stack."""
        return self._ports.stack.part(self._stream, self._partition)

    @asynccontextmanager
    async def open(self, *, after: int, mark: str) -> AsyncIterator[BatchReader]:
        """Follow the stream, if it still is the one that was followed up to `after`."""
        await self._check_same(after, mark)
        log, partition = self._ports.log, self._partition
        async with log.follow(self._stream, after=after, partition=partition) as follower:
            yield _CommitReader(follower, partial(self._fold, self._ports.stack), self._clock)

    async def _check_same(self, after: int, mark: str) -> None:
        name, ports = self._ports.stack.name, self._ports
        state = await ports.states.of(self.projection)
        loss = ends_early(self.projection, after, state)  # guard: loss-rows-not-anew
        if loss is not None:
            if may_catch_up(loss, state):  # guard: loss-rows-wait
                detail = f"its leader says it {loss.words}"
                raise Unavailable(f"stream {self.projection}", detail=detail)
            raise LogLost(name, [loss])
        # A commit may be gone by now; one that is there is the one that we saw.
        stands = (
            await ports.log.at(after, self._stream, partition=self._partition) if mark else None
        )
        # guard: checkpoint-commit-mark
        if state is not None and stands is not None and mark_of(stands) != mark:
            loss = Loss(
                part=self.projection,
                lack=Lack.MADE_ANEW,
                known_seq=after,
                first_seq=state.first_seq,
                last_seq=state.last_seq,
            )
            raise LogLost(name, [loss])


class _Pace:
    """When the batches of a source that is followed live end."""

    def __init__(self, clock: Clock, gather_s: float = GATHER_S) -> None:
        self._clock, self._gather_s = clock, gather_s
        self._ready_s = clock.monotonic_s()
        """When the next batch may end, by the monotonic clock."""

    async def gather(self, take: Callable[[], Awaitable[int]]) -> None:
        """Wait until a batch may end, and `take` what has come; if it is many, again and again.

        After a pause it may end at once, however many it has. `take` returns how many there are.
        """
        for _ in range(GATHERINGS_MAX):
            left_s = self._ready_s - self._clock.monotonic_s()
            if left_s > 0:
                await self._clock.sleep(left_s)
            self._ready_s = self._clock.monotonic_s() + self._gather_s
            count = await take()
            if left_s <= 0 or not MANY <= count < ENOUGH:  # guard: many-rows-gather-longer
                return


class _CommitReader:
    def __init__(self, follower: Follower, fold: Callable[[], RowFold], clock: Clock) -> None:
        self._follower = follower
        self._fold = fold
        self._clock = clock
        self._pace = _Pace(clock)
        self._unreadable: UnreadableEvent | None = None

    async def receive(self) -> SourceBatch | None:
        if self._unreadable is not None:
            raise self._unreadable
        records = await self._follower.receive(most=MESSAGES_AT_ONCE, wait_s=SILENCE_S)
        if not records:
            return None
        building = _BatchBuilder(self._fold())
        take_waiting = partial(self._take_waiting, building)
        try:
            building.take(records)
            if self._follower.pending < MESSAGES_MAX:
                await self._pace.gather(take_waiting)
            else:
                await take_waiting()
        except UnreadableEvent as error:
            if building.messages == 0:
                raise
            self._unreadable = error
        return building.build(pending=self._follower.pending)

    async def _take_waiting(self, building: _BatchBuilder) -> int:
        """Take those that wait, as far as they can be decoded; return how many there are."""
        until_s = self._clock.monotonic_s() + GLEAN_S_MAX
        while building.messages < MESSAGES_MAX and self._clock.monotonic_s() < until_s:
            await asyncio.sleep(0)
            wait_s = COMING_S if self._follower.pending else 0.0
            records = await self._follower.receive(most=MESSAGES_AT_ONCE, wait_s=wait_s)
            if not records:
                break
            building.take(records)
        return building.messages


class _BatchBuilder:
    def __init__(self, lives: RowFold) -> None:
        self._lives = lives
        self._last: Recorded | None = None
        self._events = 0
        self.messages = 0

    def take(self, records: Sequence[Recorded]) -> None:
        for record in records:
            self._lives.add(record)
            self._last = record
            self._events += len(record.commit.events)
            self.messages += 1

    def build(self, *, pending: int) -> SourceBatch:
        return SourceBatch(
            batches=self._lives.batches(),
            position=self._last.seq if self._last else 0,
            mark=mark_of(self._last) if self._last else "",
            events=self._events,
            pending=pending,
        )


class ClaimSource:
    """Changes of the claims bucket."""

    projection = "claims"

    def __init__(self, ports: Ports, clock: Clock) -> None:
        self._ports = ports
        self._clock = clock

    @asynccontextmanager
    async def open(self, *, after: int, mark: str) -> AsyncIterator[BatchReader]:  # noqa: ARG002 - as every feed is opened
        """Watch the bucket: first what stands now, whatever the rows say."""
        async with self._ports.leases.watch() as watch:
            yield _ClaimReader(watch, self._clock, after=after)


class _ClaimReader:
    def __init__(self, watch: ClaimWatch, clock: Clock, *, after: int) -> None:
        self._watch = watch
        self._clock = clock
        self._pace = _Pace(clock, CLAIMS_GATHER_S)
        self._position = after
        self._knows_what_stands = False

    async def receive(self) -> SourceBatch | None:
        seen = [*await self._watch.receive(most=MESSAGES_MAX, wait_s=SILENCE_S)]
        if not seen:
            return None

        async def take_waiting() -> int:
            seen.extend(await self._watch.receive(most=MESSAGES_MAX - len(seen), wait_s=0.0))
            return len(seen)

        if len(seen) < ENOUGH:
            await self._pace.gather(take_waiting)
        forgotten = [] if self._knows_what_stands else [claims.forget(self._clock.now())]
        self._knows_what_stands = True
        self._position = max(self._position, *(change.revision for change in seen))
        return SourceBatch(
            batches=arrange([*forgotten, *claims.project(seen)]),
            position=self._position,
            events=len(seen),
            pending=0,
        )


class RefusalSource:
    """Why events did not fire: what is new in the stream, page by page."""

    projection = "refusals"

    def __init__(self, ports: Ports, clock: Clock) -> None:
        self._ports = ports
        self._clock = clock

    @asynccontextmanager
    async def open(self, *, after: int, mark: str) -> AsyncIterator[BatchReader]:  # noqa: ARG002 - as every feed is opened
        """Read on past a position."""
        yield _RefusalReader(self._ports, self._clock, after=after)


class _RefusalReader:
    def __init__(self, ports: Ports, clock: Clock, *, after: int) -> None:
        self._port, self._clock, self._position = ports.refusals, clock, after
        self._forgets_s = clock.monotonic_s()

    async def receive(self) -> SourceBatch | None:
        is_time = self._clock.monotonic_s() >= self._forgets_s
        # Refusals may be lost, and their stream is then made anew.
        # guard: remade-refusals-read-anew
        if is_time and await self._port.newest_seq() < self._position:
            self._position = 0
        found = await self._port.after(self._position)
        if not found and not is_time:
            await self._clock.sleep(REFUSALS_LOOK_S)
            return None
        changes = refusals.project(found)
        if is_time:  # guard: old-refusals-forgotten
            self._forgets_s = self._clock.monotonic_s() + FORGET_S
            changes.append(refusals.forget(self._clock.now()))
        self._position = found[-1].seq if found else self._position
        return SourceBatch(
            batches=arrange(changes), position=self._position, events=len(found), pending=0
        )


def mark_of(record: Recorded) -> str:
    """Return what identifies a commit among those at its position in other journals.

    The time does: in a journal made anew the same causes make the same subjects and ids.
    """
    return f"{record.subject} {record.commit.id} {record.commit.at.isoformat()}"
