"""Rows of what was erased: made anew from the log, and gone from the files of Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import asyncpg

from projections.errors import RowsRefused
from projections.postgres.pool import REFUSED, Connection, Pool, reason
from projections.postgres.queries import query
from projections.project import project
from projections.rows import arrange
from streams.ports.log import Recorded
from streams.subjects import Stack

VACUUM_S_MAX: Final = 3600.0
"""Longest time for tables to be written anew, in seconds."""

WAL_LEFT: Final = (
    "the log of Postgres (pg_wal) may have it until its segments are used again: set wal_recycle = "
    "off, and erase again as a superuser"
)


async def make_rows_anew(
    pool: Pool, stack: Stack, read: Callable[[], AsyncIterator[Sequence[Recorded]]]
) -> int:
    """Make the rows of whole aggregates anew, as the log is now; return how many there are.

    `read` yields all commits of the aggregates, of one after the other: no more of them are in
    memory than it yields at a time. Meanwhile no projector changes a row of the stack.

    Raises:
        RowsRefused: Postgres does not take the rows.
    """
    count = 0
    async with pool.acquire() as connection, connection.transaction():
        rows = await connection.fetch(query("lock_checkpoints"), stack.name)
        positions = {row["projection"]: row["journal_seq"] for row in rows}
        async for commits in read():
            records = [
                each
                for each in commits
                # What no projector has seen yet it makes rows of by itself.
                if each.seq <= positions.get(stack.part_of(*stack.aggregate_of(each.subject)), 0)
            ]
            count += await _write(connection, stack, records)
    return count


async def _write(connection: Connection, stack: Stack, records: Sequence[Recorded]) -> int:
    changes = project(records, stack=stack)
    for batch in arrange(changes):
        name = batch.statement.name
        try:
            await connection.execute(query(name), stack.name, batch.document)
        except REFUSED as error:
            raise RowsRefused(
                "erased rows", first=0, last=0, statement=name, why=reason(error)
            ) from error
    return len(changes)


async def write_files_anew(pool: Pool) -> str:
    """Have the files of all tables with contents written anew, without what rows had before.

    Each table is locked while that is done. Returns what could not be done, for people; empty: all
    was.
    """
    async with pool.acquire() as connection:
        try:
            await connection.execute(query("vacuum_contents"), timeout=VACUUM_S_MAX)
        except asyncpg.InsufficientPrivilegeError as error:
            return f"tables are not written anew: {error}; run VACUUM FULL as their owner"
        try:
            await connection.execute(query("switch_wal"))
            await connection.execute(query("checkpoint"), timeout=VACUUM_S_MAX)
            is_recycled = await connection.fetchval(query("show_wal_recycle")) == "on"
        except asyncpg.InsufficientPrivilegeError:
            is_recycled = True
    return WAL_LEFT if is_recycled else ""
