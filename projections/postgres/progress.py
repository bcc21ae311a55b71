"""How far the rows have come, and waiting until they have come far enough."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

import asyncpg

from projections.errors import BadPlace, NotCaughtUp, PostgresUnavailable
from projections.postgres.pool import AWAY, Connection, Pool
from projections.postgres.queries import query
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.ports.all import Ports
from streams.subjects import Stack

PROJECTED: Final = (*AGGREGATE_STREAMS, Stream.DEAD)
"""The streams whose commits become rows."""

CHANNEL: Final = "vigil_projected"
"""Postgres notifies it of every moved checkpoint; `sql/move_checkpoint.sql` sends."""

LOOK_S_MAX: Final = 1.0
"""Longest wait between two looks, in seconds, should a notification get lost."""


# guard: progress-includes-state
async def heads(ports: Ports, streams: Collection[Stream] = AGGREGATE_STREAMS) -> dict[str, int]:
    """Return the newest sequence of each projection of `streams`, by its name, for `caught_up`.

    A stream of one partition has one projection, called as the stream is: `journal`.
    """
    return {
        ports.stack.part(stream, each): await ports.log.head(stream, partition=each)
        for stream in streams
        for each in ports.stack.partitions_of(stream)
    }


async def known_positions(pool: Pool, stack: Stack) -> Mapping[str, int]:
    """Return up to where the rows know each stream of commits, by its name within the stack.

    Raises `PostgresUnavailable`.
    """
    try:
        async with pool.acquire() as connection:
            found = await _positions(connection, stack)
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error
    return {part: seq for part, seq in found.items() if part.partition("-")[0] in PROJECTED}


async def caught_up(
    pool: Pool, stack: Stack, newest: Mapping[str, int], *, timeout_s: float
) -> None:
    """Return once the rows show everything up to `newest`: a reader then sees its own writes.

    Args:
        stack: Whose rows; with its partitions, as the ports' stack has them.
        newest: A sequence for each projection that counts, by its name. `heads` gives those of
            everything that is there now; `Stack.part_of` names the projection of one aggregate.

    Raises:
        NotCaughtUp: they do not after `timeout_s`.
        PostgresUnavailable: Postgres is away or refuses.
        BadPlace: `newest` names a projection that the stack does not have.
    """
    missing = _wanted(stack, newest)
    if not missing:
        return
    reached: Mapping[str, int] = {}
    try:
        async with asyncio.timeout(timeout_s), pool.acquire() as connection:
            moved = asyncio.Event()
            async with _Listening(connection, moved):
                while True:
                    reached = await _positions(connection, stack)
                    missing = _past(reached, missing)
                    if not missing:
                        return
                    await _wait_briefly(moved)
    except TimeoutError as error:
        name, wanted = next(iter(missing.items()))
        at = reached.get(name, 0)
        raise NotCaughtUp(name, wanted=wanted, reached=at, waited_s=timeout_s) from error
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


def _wanted(stack: Stack, newest: Mapping[str, int]) -> Mapping[str, int]:
    known = {
        stack.part(stream, each) for stream in PROJECTED for each in stack.partitions_of(stream)
    }
    strange = sorted(newest.keys() - known)
    if strange:
        raise BadPlace(f"stack {stack.name} has no projection {strange[0]}")
    return _past({}, newest)


def _past(reached: Mapping[str, int], wanted: Mapping[str, int]) -> Mapping[str, int]:
    return {name: seq for name, seq in wanted.items() if reached.get(name, 0) < seq}


class _Listening:
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


async def _positions(connection: Connection, stack: Stack) -> Mapping[str, int]:
    try:
        rows = await connection.fetch(query("list_checkpoints"), stack.name)
    except asyncpg.UndefinedTableError:
        return {}
    return {row["projection"]: row["journal_seq"] for row in rows}


async def _wait_briefly(moved: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_S_MAX):
            await moved.wait()
    except TimeoutError:
        return
    moved.clear()
