"""Gives the room of rows that have left back to the disk, while people read and projectors write.

Postgres uses the room of deleted rows again, and a file shrinks only where its end is empty. So the
rows at the end of a table move to the room before them, slice by slice; a vacuum then cuts off the
end, and indexes are made anew beside the old ones. Nothing of it locks a table that people read.

A slice is taken out and put in by one statement, so nobody sees a row twice or not at all. Whoever
writes rows waits meanwhile, as a projector that updates a row which is being moved would miss it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import asyncpg
import msgspec
import structlog

from projections.errors import PostgresUnavailable
from projections.postgres import telemetry
from projections.postgres.pool import AWAY, Connection, Pool
from projections.postgres.queries import query
from streams.clock import Clock
from streams.ports.all import Ports

LOOK_S: Final = 3600.0
"""Between two looks for tables that are half empty, in seconds."""

ROOM_BYTES_MIN: Final = 64 * 1024 * 1024
"""Room that is worth it."""

EMPTY_MIN: Final = 0.5
"""Least share of a table and its indexes that is empty. Where half is, at most as much is moved as
has left: a row that leaves costs at most one more that moves."""

SLICE_PAGES: Final = 16
"""Pages of one transaction. Measured: 300 rows of steps in 20 to 60 ms."""

SLICES_MAX: Final = 100_000
"""Slices of a table in one pass: 13 GB. The next pass does the rest."""

PAUSE_S: Final = 0.05
"""Between two slices, in seconds: projectors go on then."""

WAIT: Final = "1s"
"""Longest that a slice waits for those who write rows, a swap of a rebuild above all: others wait
behind it as long."""

HOLD: Final = "2s"
"""Longest that a statement of a slice may take, and that Postgres waits for the next one of a
process that stands still: those who write rows wait as long. What takes longer is halved."""

TRIES_MAX: Final = 10
"""Tries of one slice; then the pass ends, and the next one goes on."""

TRY_S: Final = 5.0
"""Before the next try, in seconds."""

STATEMENT_S_MAX: Final = 3600.0
"""Longest that a vacuum or an index may take, in seconds."""

log = structlog.get_logger("vigil.projector")


class TableRoom(msgspec.Struct, frozen=True, kw_only=True):
    """How full a table is, with its indexes, and what gives the rest back, as SQL."""

    name: str
    size_bytes: int
    empty_bytes: int
    """What no row fills, by what Postgres has counted last; some percent more or less."""
    is_ours: bool
    """Whether who asks owns it: nobody else can shrink it."""
    vacuum: str
    move: str
    remake: Sequence[str]
    """One for each index."""
    forget: Sequence[str]
    """One for each index that a pass has left half made."""


async def list_room(pool: Pool) -> list[TableRoom]:
    """Return how full each table is of which Postgres tells the caller anything.

    Raises `PostgresUnavailable`.
    """
    try:
        async with pool.acquire() as connection:
            return await _tables(connection)
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


async def compact_for_ever(_: Ports, pool: Pool, clock: Clock) -> None:
    """Give back the room of half-empty tables, look by look; what is away is tried again."""
    while True:
        await clock.sleep(LOOK_S)
        try:
            await compact(pool, clock=clock)
        except PostgresUnavailable as error:
            log.info("room is given back later", why=str(error))


async def compact(pool: Pool, *, clock: Clock) -> dict[str, int]:
    """Give back the room of tables that are half empty, of all stacks; return bytes by table.

    Tables whose owner is somebody else are left as they are. Does nothing while somebody else does
    it. May end at any moment: what was done is not lost, and the next call goes on.

    Raises:
        PostgresUnavailable: Postgres is away, or somebody writes rows for a long time.
    """
    try:
        async with pool.acquire() as connection:
            is_ours = await connection.fetchval(query("compact/lock_compaction"))
            if not is_ours:  # guard: one-compacts
                return {}
            return await _compact(connection, clock=clock)
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


async def _compact(connection: Connection, *, clock: Clock) -> dict[str, int]:
    given: dict[str, int] = {}
    for table in await _tables(connection):
        if not table.is_ours:  # guard: only-own-tables-shrink
            continue
        # An index that is half made is written, too, and never read.
        for statement in table.forget:  # guard: half-made-index-goes
            await connection.execute(statement, timeout=STATEMENT_S_MAX)
        is_half_empty = table.empty_bytes >= EMPTY_MIN * table.size_bytes
        if is_half_empty and table.empty_bytes >= ROOM_BYTES_MIN:
            given[table.name] = await _shrink(connection, table, clock=clock)
    return given


async def _shrink(connection: Connection, table: TableRoom, *, clock: Clock) -> int:
    # Where there is room is known from a vacuum.
    await connection.execute(table.vacuum, timeout=STATEMENT_S_MAX)
    await _move_to_front(connection, table, clock=clock)
    await connection.execute(table.vacuum, timeout=STATEMENT_S_MAX)
    for statement in table.remake:
        await connection.execute(statement, timeout=STATEMENT_S_MAX)
    sizes = {each.name: each.size_bytes for each in await _tables(connection)}
    left = sizes.get(table.name, 0)
    given_bytes = table.size_bytes - left
    telemetry.bytes_given_back.add(max(given_bytes, 0), {"table": table.name})
    log.info("gave room back", table=table.name, bytes=given_bytes, left=left)
    return given_bytes


async def _move_to_front(connection: Connection, table: TableRoom, *, clock: Clock) -> None:
    """Move rows from the end of a table to the room before, until there is none."""
    end, pages = await connection.fetchval(query("compact/count_pages"), table.name), SLICE_PAGES
    for _ in range(SLICES_MAX):
        begin = max(end - pages, 0)
        if begin == end:
            return
        try:
            has_room = await _move_in_turn(connection, table, begin, end, clock=clock)
        except asyncpg.QueryCanceledError:  # guard: slow-slice-halved
            pages //= 2
            has_room, begin = pages > 0, end
        if not has_room:
            return
        end = begin
        await clock.sleep(PAUSE_S)


async def _move_in_turn(
    connection: Connection, table: TableRoom, begin: int, end: int, *, clock: Clock
) -> bool:
    """Move a slice as soon as nobody writes for long."""
    for _ in range(TRIES_MAX - 1):
        with suppress(asyncpg.LockNotAvailableError):
            return await _move_slice(connection, table, begin, end)
        await clock.sleep(TRY_S)
    return await _move_slice(connection, table, begin, end)


async def _move_slice(connection: Connection, table: TableRoom, begin: int, end: int) -> bool:
    """Move the rows of some pages; return whether most of them found room before these."""
    async with connection.transaction():
        # guard: slice-waits-briefly
        await connection.execute(query("compact/limit_wait"), WAIT, HOLD)
        await connection.execute(query("compact/hold_writers"))  # guard: moved-while-nobody-writes
        row = await connection.fetchrow(table.move, (begin, 0), (end, 0))
    assert row is not None, "it counts"
    return bool(row["stayed"] <= row["moved"] / 2)  # guard: moves-while-there-is-room


async def _tables(connection: Connection) -> list[TableRoom]:
    rows = await connection.fetch(query("compact/list_tables"))
    return [msgspec.convert(dict(row), TableRoom) for row in rows]
