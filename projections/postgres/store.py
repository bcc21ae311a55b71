"""Rows and checkpoint, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from projections.errors import OtherJournal, ProjectorFenced, RowsRefused
from projections.postgres.pool import REFUSED, Connection, Pool, reason
from projections.postgres.queries import query
from projections.rows import RowBatch


class ProjectorPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far one projection of a stack has come."""

    stack: str
    projection: str
    """`journal` or `state`, or a partition as in `journal-0of4`; `dead`, `claims` or
    `refusals`."""
    position: int
    """Everything up to this sequence is in the rows."""
    mark: str = ""
    """The commit there; empty when unknown."""
    trouble: str | None = None
    """Why the projection stands still, if it does."""


async def load(pool: Pool, *, stack: str, projection: str, now: datetime) -> ProjectorPosition:
    """Return the checkpoint, begun at 0 when there is none.

    Raises:
        OtherJournal: the rows show streams of another layout.
    """
    async with pool.acquire() as connection:
        await connection.execute(query("begin_checkpoint"), stack, projection, now)
        row = await connection.fetchrow(query("read_checkpoint"), stack, projection)
        other = await connection.fetchval(query("find_other_layout"), stack, projection)
    if other is not None:
        detail = f"is not what the rows show: that is {other}"
        raise OtherJournal(f"{stack}-{projection}", detail=detail)
    position, mark, trouble = row or (0, "", None)
    return ProjectorPosition(
        stack=stack, projection=projection, position=position, mark=mark, trouble=trouble
    )


async def note_trouble(pool: Pool, *, stack: str, projection: str, trouble: str | None) -> None:
    """Keep beside the checkpoint why it stands still, for people; None: it does not."""
    async with pool.acquire() as connection:
        await connection.execute(query("note_trouble"), stack, projection, trouble)


async def resume(pool: Pool, *, stack: str, positions: Mapping[str, int], now: datetime) -> None:
    """Move each checkpoint to where its stream goes on, after a loss that a person has accepted."""
    async with pool.acquire() as connection, connection.transaction():
        for projection, position in positions.items():
            await connection.execute(query("resume_checkpoint"), stack, projection, position, now)


async def apply(
    connection: Connection,
    batches: Iterable[RowBatch],
    *,
    since: ProjectorPosition,
    position: int,
    mark: str = "",
    now: datetime,
) -> ProjectorPosition:
    """Change the rows and move the checkpoint from `since` to `position`, or do neither.

    Raises:
        RowsRefused: Postgres does not take the rows.
        ProjectorFenced: the checkpoint is not at `since`: another projector moved it.
    """
    async with connection.transaction():
        # First, for its row lock: a rival waits here, and then finds that it has moved.
        moved = await connection.fetch(
            query("move_checkpoint"),
            since.stack,
            since.projection,
            since.position,
            position,
            mark,
            now,
        )
        if not moved:  # guard: checkpoint-fence
            raise ProjectorFenced(since.projection, expected=since.position)
        for batch in batches:
            await _run(connection, batch, since=since, position=position)
    return msgspec.structs.replace(since, position=position, mark=mark, trouble=None)


async def _run(
    connection: Connection, batch: RowBatch, *, since: ProjectorPosition, position: int
) -> None:
    name = batch.statement.name
    try:
        text = batch.statement.text or query(name)
        await connection.execute(text, since.stack, batch.document)
    except REFUSED as error:
        raise RowsRefused(
            since.projection,
            first=since.position + 1,
            last=position,
            statement=name,
            why=reason(error),
        ) from error
