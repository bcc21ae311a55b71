"""Rows and checkpoint, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from projections.errors import ProjectorFenced
from projections.postgres.pool import Pool
from projections.postgres.queries import query
from projections.statement import Batch


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far one projection of a stack has come."""

    stack: str
    projection: str
    """`journal`, `dead` or `claims`."""
    position: int
    """Everything up to this sequence is in the rows."""


async def load(pool: Pool, *, stack: str, projection: str, now: datetime) -> Checkpoint:
    """Return the checkpoint, begun at 0 when there is none."""
    async with pool.acquire() as connection:
        await connection.execute(query("begin_checkpoint"), stack, projection, now)
        position: int = await connection.fetchval(query("read_checkpoint"), stack, projection)
    return Checkpoint(stack=stack, projection=projection, position=position)


async def apply(
    pool: Pool, batches: Iterable[Batch], *, since: Checkpoint, position: int, now: datetime
) -> Checkpoint:
    """Change the rows and move the checkpoint from `since` to `position`, or do neither.

    Raises:
        ProjectorFenced: the checkpoint is not at `since`: another projector moved it.
    """
    async with pool.acquire() as connection, connection.transaction():
        # First, for its row lock: a rival waits here, and then finds that it has moved.
        moved = await connection.fetch(
            query("move_checkpoint"),
            since.stack,
            since.projection,
            since.position,
            position,
            now,
        )
        if not moved:
            raise ProjectorFenced(since.projection, expected=since.position)
        for batch in batches:
            await connection.execute(query(batch.statement.name), since.stack, *batch.columns())
    return msgspec.structs.replace(since, position=position)
