"""Connections to Postgres, all set to one schema."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import asyncpg

from projections.errors import BadSchema, PostgresUnavailable
from projections.postgres.dsn import address
from streams.layout import PARTITIONS_MAX

SCHEMA: Final = "vigil"

CONNECTIONS_MAX: Final = 2 * PARTITIONS_MAX + 8
"""Per process, made as they are needed: a projector holds one for each partition of the journal
and of the state and two more, a waiter of `caught_up` one, and some are for queries."""

CONNECT_S_MAX: Final = 5.0
"""Longest wait for a connection, in seconds."""

COMMAND_S_MAX: Final = 60.0
"""Longest wait for one statement, in seconds; a batch takes milliseconds."""

AWAY: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # asyncpg 0.32, when a server dies while a transaction ends.
    asyncpg.InternalClientError,
)
"""Asyncpg's errors when there is no server, or none that does what we ask for now."""

REFUSED: Final = (
    asyncpg.DataError,  # SQLSTATE class 22
    asyncpg.IntegrityConstraintViolationError,  # 23
    asyncpg.SyntaxOrAccessError,  # 42
    asyncpg.ProgramLimitExceededError,  # 54
)
"""Asyncpg's errors when Postgres would answer the same however often it is asked. Some are `AWAY`,
too: look for these first."""

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_SETTINGS: Final = {
    "application_name": "vigil",
    # A crash of Postgres takes rows and checkpoint back together, and the log has both.
    "synchronous_commit": "off",
    # Compiling a statement costs more than running it on a few hundred rows.
    "jit": "off",
}


def open_pool(dsn: str, *, schema: str = SCHEMA) -> Pool:
    """Return connections to be made when they are needed; nobody is asked anything yet.

    Enter it (`async with`) or await it before use.

    Raises:
        BadSchema: `schema` is not a plain lower-case name.
        PostgresUnavailable: `dsn` cannot be read.
    """
    if not _SCHEMA_NAME.fullmatch(schema):
        raise BadSchema(f"schema: {schema!r}; use 1 to 63 of a-z 0-9 _, not a digit first")
    where = address(dsn)
    try:
        return asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=CONNECTIONS_MAX,
            timeout=CONNECT_S_MAX,
            command_timeout=COMMAND_S_MAX,
            server_settings={**_SETTINGS, "search_path": schema},
        )
    except (ValueError, asyncpg.InterfaceError) as error:
        raise PostgresUnavailable(where, detail=str(error)) from error


async def connect(dsn: str, *, schema: str = SCHEMA) -> Pool:
    """Return connections that were tried once.

    Raises:
        BadSchema: `schema` is not a plain lower-case name.
        PostgresUnavailable: no server there, or it does not let us in.
    """
    pool = await open_pool(dsn, schema=schema)
    try:
        async with pool.acquire(timeout=CONNECT_S_MAX):
            return pool
    except (*AWAY, ValueError) as error:
        await pool.close()
        detail = str(error) or f"no answer within {CONNECT_S_MAX:g} s"
        raise PostgresUnavailable(address(dsn), detail=detail) from error


def reason(error: asyncpg.PostgresError) -> str:
    """Return why Postgres refuses, without the row that it quotes: that may have secrets."""
    return str(error.args[0])
