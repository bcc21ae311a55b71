"""Rebuilds for tests, and rows that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from projections.postgres.pool import Pool
from projections.postgres.rebuild.pace import RebuildProgress
from projections.postgres.rebuild.rebuild import (
    Prune,
    RebuildOptions,
    RebuildReport,
    VerifyReport,
    rebuild,
    verify,
)
from streams.clock import Clock, SystemClock
from streams.ports.all import Ports
from streams.ports.log import EventLog
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER
from tests.projections import lives
from tests.projections.lives import projecting, wait_projected
from tests.projections.test_projector import fill

CLOCK = SystemClock()

SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^vigil_(rebuild|replaced)_'"


WORK_S = 0.02
"""Between two things that happen: without it, there are soon thousands of rows."""


async def work(ports: Ports, is_over: asyncio.Event) -> None:
    """Have things happen until it is over."""
    number = 100
    while not is_over.is_set():
        number += 1
        await fill(ports, first=number, count=1)
        await CLOCK.sleep(WORK_S)


async def rebuilt(
    ports: Ports,
    pool: Pool,
    *,
    history: EventLog | None = None,
    told: list[RebuildProgress] | None = None,
    prune: Prune | None = None,
    clock: Clock = CLOCK,
    **options: object,
) -> RebuildReport:
    """Rebuild the rows of a stack."""
    return await rebuild(
        history or ports.log,
        pool,
        ports.stack,
        clock=clock,
        options=RebuildOptions(**options),
        tell=[].append if told is None else told.append,
        prune=prune,
    )


async def verified(
    ports: Ports,
    pool: Pool,
    *,
    told: list[RebuildProgress] | None = None,
    prune: Prune | None = None,
    **options: object,
) -> VerifyReport:
    """Hold the rows of a stack against its log."""
    return await verify(
        ports.log,
        pool,
        ports.stack,
        clock=CLOCK,
        options=RebuildOptions(**options),
        tell=[].append if told is None else told.append,
        prune=prune,
    )


async def spoil(pool: Pool, stack: Stack) -> None:
    """Make one row wrong, take one away, and add one that nothing says."""
    await pool.execute("UPDATE episodes SET summary = 'wrong' WHERE stack = $1", stack.name)
    await pool.execute("DELETE FROM findings WHERE stack = $1", stack.name)
    await pool.execute(
        "INSERT INTO lane_tickets (stack, actor_id, episode_id, journal_seq, expectation_id,"
        " number, priority, state) VALUES ($1, 'nobody', gen_random_uuid(), 1, 'x', 1, 0,"
        " 'waiting')",
        stack.name,
    )


async def schemas(pool: Pool) -> Sequence[str]:
    """Return the schemas of rebuilds."""
    return sorted(name for (name,) in await pool.fetch(SCHEMAS))


async def projected(ports, pool):
    async with projecting(ports, pool):
        await wait_projected(ports, pool)


def publish(ports, number, *events):
    """Put a commit on an episode at once, without waiting."""
    made = lives.commit(*events, name=f"late-{number}-{len(events)}")
    subject = ports.stack.episode(lives.episode_id(number))
    ports.log.publish_raw(subject, codec.encode_commit(made), {COMMIT_HEADER: made.id})


class When(list):
    """Does something at the first moment of a stage, as the rebuild tells of it."""

    def __init__(self, stage, work):
        super().__init__()
        self._stage, self._work = stage, work

    def append(self, progress):
        super().append(progress)
        if progress.stage == self._stage and self._work is not None:
            work, self._work = self._work, None
            work()


class Killed(BaseException):
    """The end of a process, at a moment of its own choosing."""


def die():
    raise Killed
