"""The projector: follow, fold, write. One node at a time does it for a stack.

stand by ──lease──▶ project ──lease lost, or fenced──▶ stand by
                      │  ▲
         no server    ▼  │  tried again, ever more slowly
                     wait
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

import msgspec
import structlog

from projections.errors import (
    CustomChanged,
    CustomFailed,
    MigrationChanged,
    MigrationUnknown,
    OtherJournal,
    ProjectorFenced,
    RowsRefused,
)
from projections.postgres import store, telemetry
from projections.postgres.batches import (
    BatchReader,
    BatchSource,
    ClaimSource,
    LogSource,
    RefusalSource,
    SourceBatch,
)
from projections.postgres.compact import compact_for_ever
from projections.postgres.migrator import migrate
from projections.postgres.pool import AWAY, REFUSED, Connection, Pool, reason
from projections.postgres.progress import PROJECTED
from projections.postgres.prune import prune_for_ever
from projections.postgres.rebuild import fresh
from streams.clock import Clock
from streams.errors import (
    DamagedSegment,
    LeaseLost,
    NotInArchive,
    Unavailable,
    UnreadableEvent,
)
from streams.keys import projector_claim
from streams.layout import Stream
from streams.model.losses import LogLost
from streams.ports.all import Ports
from streams.ports.leases import Lease, Leases

STANDBY_S: Final = 2.0
"""Between two tries for the lease, in seconds. A node that stops gives it up at once, so
this is how long the rows stand still then; after a crash it is the lease that counts."""

DELAY_S_MIN: Final = 0.1
DELAY_S_MAX: Final = 5.0
"""Wait after a failure, in seconds: doubled for each one in a row."""

STUCK_S: Final = 30.0
"""Wait before looking again at what only a person or a newer version can put right."""

RENEWALS_PER_LEASE: Final = 3

EXPIRED_LOOK_S: Final = 60.0
"""Between two looks for rows that a rebuild has replaced, and whose time is over, in seconds."""

log = structlog.get_logger("vigil.projector")

_TRANSIENT: Final = (*AWAY, Unavailable)
_STUCK: Final = (
    UnreadableEvent,
    DamagedSegment,
    NotInArchive,
    OtherJournal,
    RowsRefused,
    MigrationChanged,
    MigrationUnknown,
    CustomFailed,
    CustomChanged,
    *REFUSED,
)


class Projected(msgspec.Struct, frozen=True, kw_only=True):
    """What a projector keeps up to date."""

    lease: str
    """Names the lease that its projectors take turns by."""
    prepare: Callable[[Pool], Awaitable[object]]
    """Brings its schema up to date."""
    feeds: Callable[[Ports, Clock], Iterable[BatchSource]]
    beside: Sequence[Callable[[Ports, Pool, Clock], Coroutine[None, None, object]]] = ()
    """What else its projector does all the time."""


def _feeds(ports: Ports, clock: Clock) -> Iterator[BatchSource]:
    for stream in PROJECTED:
        for partition in ports.stack.partitions_of(stream):
            yield LogSource(ports, stream, partition, clock=clock)
    yield ClaimSource(ports, clock)
    yield RefusalSource(ports, clock)


TABLES: Final = Projected(
    lease=Stream.JOURNAL.value,
    prepare=migrate,
    feeds=_feeds,
    beside=(prune_for_ever, compact_for_ever),
)
"""The tables of the stack."""


async def project(
    ports: Ports,
    pool: Pool,
    *,
    node: str,
    clock: Clock,
    stop: asyncio.Event,
    projected: Projected = TABLES,
) -> None:
    """Keep the rows of a stack up to date, taking turns with other nodes, until `stop`.

    Brings the schema up to date first. What is away is tried again; before what cannot be read it
    stands still, with one line in the log.

    Raises `LogLost` if a stream lacks what the rows show.
    """
    turns = _take_turns(ports, pool, projected, node=node, clock=clock)
    await _wait_first_end(stop.wait(), turns)


async def _take_turns(
    ports: Ports, pool: Pool, projected: Projected, *, node: str, clock: Clock
) -> None:
    trouble = _Trouble("lease")
    key = projector_claim(projected.lease)
    while True:
        try:
            lease = await ports.leases.acquire(key, holder=node)
        except Unavailable as error:
            await clock.sleep(trouble.met(error))
            continue
        trouble.passed()
        if lease is not None:
            await _serve(ports, pool, projected, lease=lease, clock=clock)
        await clock.sleep(STANDBY_S)


async def _serve(
    ports: Ports, pool: Pool, projected: Projected, *, lease: Lease, clock: Clock
) -> None:
    """Project until the lease is lost or another projector shows up."""
    held = _ProjectorLease(ports.leases, lease, clock)
    log.info("projecting", stack_name=ports.stack.name, node=lease.holder)
    try:
        await _wait_first_end(
            held.keep(),
            _drop_expired(pool, clock),
            *(work(ports, pool, clock) for work in projected.beside),
            *(
                _follow(feed, ports, pool, projected, clock=clock)
                for feed in projected.feeds(ports, clock)
            ),
        )
    except (LeaseLost, ProjectorFenced) as ended:
        log.warning("standing by", stack_name=ports.stack.name, node=lease.holder, why=str(ended))
    finally:
        await held.release()


async def _wait_first_end(*works: Coroutine[None, None, object]) -> None:
    """Run all until one ends, then end the others. Raises what the one raised.

    Not a task group: before Python 3.13 one that fails while it is cancelled forgets the
    cancellation, and one that fails leaves its task half cancelled.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


class _ProjectorLease:
    def __init__(self, leases: Leases, lease: Lease, clock: Clock) -> None:
        self._leases = leases
        self._lease = lease
        self._clock = clock

    async def keep(self) -> None:
        """Renew, until that cannot be done any more."""
        while True:
            await self._clock.sleep(self._leases.ttl_s / RENEWALS_PER_LEASE)
            self._lease.check(monotonic_s=self._clock.monotonic_s())
            # An unanswered renewal is tried again, and the check above ends that.
            with suppress(Unavailable):
                self._lease = await self._leases.renew(self._lease)

    async def release(self) -> None:
        with suppress(Unavailable):
            await self._leases.complete(self._lease)


async def _follow(
    feed: BatchSource, ports: Ports, pool: Pool, projected: Projected, *, clock: Clock
) -> None:
    trouble = _Trouble(feed.projection)
    while True:
        try:
            await projected.prepare(pool)
            await _keep_up(feed, ports, pool, clock=clock, trouble=trouble)
        except (*_STUCK, *_TRANSIENT) as error:
            if isinstance(error, _STUCK):
                await _note(pool, ports, feed, _text(error))
            await clock.sleep(trouble.met(error))
        except LogLost as error:
            await _note(pool, ports, feed, _text(error))
            raise


async def _drop_expired(pool: Pool, clock: Clock) -> None:
    """Drop what rebuilds have replaced, once its time is over."""
    while True:
        await clock.sleep(EXPIRED_LOOK_S)
        # The next look is soon; what keeps Postgres away is logged by those who follow.
        with suppress(*AWAY):
            async with pool.acquire() as connection:
                for schema in await fresh.drop_expired(connection, now=clock.now()):
                    log.info("dropped what a rebuild had replaced", schema=schema)


async def _note(pool: Pool, ports: Ports, feed: BatchSource, text: str) -> None:
    """Write into the table, too, why the projection stands still; `vigil doctor` reads it there."""
    # What keeps us from writing it down is in the log.
    with suppress(*AWAY):
        await store.note_trouble(
            pool, stack=ports.stack.name, projection=feed.projection, trouble=text
        )


async def _keep_up(
    feed: BatchSource, ports: Ports, pool: Pool, *, clock: Clock, trouble: _Trouble
) -> None:
    checkpoint = await store.load(
        pool, stack=ports.stack.name, projection=feed.projection, now=clock.now()
    )
    opening = feed.open(after=checkpoint.position, mark=checkpoint.mark)
    # One connection for as long as it goes well: the pool cleans each that it gets back.
    async with opening as reader, pool.acquire() as connection, _Ahead(reader) as ahead:
        while True:
            batch = await ahead.receive()
            if batch is not None:
                checkpoint = await _write(connection, batch, since=checkpoint, clock=clock)
            elif checkpoint.trouble is not None:
                checkpoint = await _forget_trouble(pool, checkpoint)
            trouble.passed()


async def _forget_trouble(
    pool: Pool, checkpoint: store.ProjectorPosition
) -> store.ProjectorPosition:
    await store.note_trouble(
        pool, stack=checkpoint.stack, projection=checkpoint.projection, trouble=None
    )
    return msgspec.structs.replace(checkpoint, trouble=None)


class _Ahead:
    """Receives what comes next while Postgres is at work on what came before."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self._next = asyncio.create_task(reader.receive())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._next.cancel()
        await asyncio.wait({self._next})
        if not self._next.cancelled():
            # Whatever it says, the next session hears it again.
            self._next.exception()

    async def receive(self) -> SourceBatch | None:
        batch = await self._next
        self._next = asyncio.create_task(self._reader.receive())
        return batch


async def _write(
    connection: Connection, batch: SourceBatch, *, since: store.ProjectorPosition, clock: Clock
) -> store.ProjectorPosition:
    labels = {"stack": since.stack, "projection": since.projection}
    began_s = clock.monotonic_s()
    with telemetry.tracer.start_as_current_span("projection.batch", attributes=labels) as span:
        span.set_attribute("events", batch.events)
        span.set_attribute("position", batch.position)
        moved = await store.apply(
            connection,
            batch.batches,
            since=since,
            position=batch.position,
            mark=batch.mark,
            now=clock.now(),
        )
    telemetry.batch_duration.record(clock.monotonic_s() - began_s, labels)
    telemetry.events.add(batch.events, labels)
    telemetry.lag.set(batch.pending, labels)
    return moved


def _text(error: Exception) -> str:
    said = reason(error) if isinstance(error, REFUSED) else str(error)
    return said or "no answer"


class _Trouble:
    """Logs once what is wrong, and once that it is over."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._said: type[Exception] | None = None
        self._delay_s = DELAY_S_MIN

    def met(self, error: Exception) -> float:
        """Return how long to wait before the next try, in seconds."""
        if type(error) is not self._said:
            self._said = type(error)
            tell = log.error if isinstance(error, _STUCK) else log.warning
            tell(
                "cannot go on",
                projection=self._what,
                reason=type(error).__name__,
                error=_text(error),
            )
        if isinstance(error, _STUCK):
            return STUCK_S
        self._delay_s = min(2 * self._delay_s, DELAY_S_MAX)
        return self._delay_s

    def passed(self) -> None:
        if self._said is not None:
            log.info("going on", projection=self._what)
        self._said = None
        self._delay_s = DELAY_S_MIN
