"""How far the rows have come, and waiting until they have come far enough."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from projections.errors import NotCaughtUp, PostgresUnavailable
from projections.postgres.pool import AWAY, Connection, Pool
from projections.postgres.queries import query
from streams.subjects import Stack, Stream

CHANNEL: Final = "vigil_projected"
"""On which Postgres tells of every moved checkpoint; `sql/move_checkpoint.sql` sends."""

LOOK_S_MAX: Final = 1.0
"""Longest wait between two looks, in seconds, should a notification get lost."""


async def caught_up(
    pool: Pool,
    stack: Stack,
    seq: int,
    *,
    timeout_s: float,
    stream: Stream = Stream.JOURNAL,
) -> None:
    """Return once the rows show everything up to `seq`: a reader then sees its own writes.

    Raises:
        NotCaughtUp: they do not after `timeout_s`.
        PostgresUnavailable: Postgres is away or refuses.
    """
    reached = 0
    try:
        async with asyncio.timeout(timeout_s), pool.acquire() as connection:
            moved = asyncio.Event()
            async with _Listening(connection, moved):
                while True:
                    reached = await _position(connection, stack, stream)
                    if reached >= seq:
                        return
                    await _wait_briefly(moved)
    except TimeoutError as error:
        raise NotCaughtUp(stream.value, wanted=seq, reached=reached, waited_s=timeout_s) from error
    except AWAY as error:
        raise PostgresUnavailable("the pool's server", detail=str(error)) from error


class _Listening:
    """Sets an event whenever a checkpoint moves, and when the connection is lost."""

    def __init__(self, connection: Connection, moved: asyncio.Event) -> None:
        self._connection = connection
        self._moved = moved

    async def __aenter__(self) -> None:
        await self._connection.add_listener(CHANNEL, self._on_notice)

    async def __aexit__(self, *_: object) -> None:
        if not self._connection.is_closed():
            await self._connection.remove_listener(CHANNEL, self._on_notice)

    def _on_notice(self, *_: object) -> None:
        self._moved.set()


async def _position(connection: Connection, stack: Stack, stream: Stream) -> int:
    try:
        position: int | None = await connection.fetchval(
            query("read_checkpoint"), stack.name, stream.value
        )
    except asyncpg.UndefinedTableError:
        return 0
    return position or 0


async def _wait_briefly(moved: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_S_MAX):
            await moved.wait()
    except TimeoutError:
        return
    moved.clear()
