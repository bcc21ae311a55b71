"""Rebuilds for tests, and rows that are wrong."""

from __future__ import annotations

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
from streams.history import LogHistory
from streams.ports.all import Ports
from streams.ports.history import CommitHistory
from streams.subjects import Stack

CLOCK = SystemClock()

SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^vigil_(rebuild|replaced)_'"


async def rebuilt(
    ports: Ports,
    pool: Pool,
    *,
    history: CommitHistory | None = None,
    told: list[RebuildProgress] | None = None,
    prune: Prune | None = None,
    clock: Clock = CLOCK,
    **options: object,
) -> RebuildReport:
    """Rebuild the rows of a stack."""
    return await rebuild(
        history or LogHistory(ports),
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
        LogHistory(ports),
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
