"""How far the rows are that pages are drawn of."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import structlog

from projections.postgres.progress import caught_up, heads, known_positions
from streams.layout import Stream
from vigil.client import Client
from vigil.errors import Trouble

SHOWN_S: Final = 2.0
"""Longest wait until the rows show what somebody has done, in seconds."""

log = structlog.get_logger("vigil.console")


class RowsPosition(NamedTuple):
    """Up to where a page is true."""

    number: int
    """Grows whenever the rows move: the sum of the sequences of all streams."""
    says: str
    """The sequence of the journal, or of each of its partitions, in words."""


NOWHERE: Final = RowsPosition(0, "")


async def read_position(client: Client) -> RowsPosition:
    """Return how far the rows are now."""
    async with client.connections.rows() as pool:
        found = await known_positions(pool, client.stack)
    journal = Stream.JOURNAL.value
    said = {part: seq for part, seq in found.items() if part.partition("-")[0] == journal}
    says = " · ".join(f"{part} {seq:,}" for part, seq in sorted(said.items()))
    return RowsPosition(sum(found.values()), says)


async def read_number(client: Client) -> int:
    """Return how far the rows are, as long as both servers answer.

    While the log is away the rows stand still, and whoever watches them has to be told why.
    """
    async with client.connections.log(is_reading=True) as ports:
        await ports.log.head(Stream.JOURNAL)  # guard: away-log-told
    return (await read_position(client)).number


async def wait_shown(client: Client) -> None:
    """Return once the rows show all that is on the log now, so that people see what they did.

    It gives up after `SHOWN_S`: the page is then a little behind, and catches up by itself.
    """
    try:
        async with client.connections.log() as ports, client.connections.rows() as pool:
            newest = await heads(ports)
            await caught_up(pool, ports.stack, newest, timeout_s=SHOWN_S)
    except Trouble as error:
        log.info("rows are behind", error=str(error))


async def count_waiting(client: Client, *, at: datetime | None = None) -> dict[str, int]:
    """Return the address of an entry of the navigation → how much there waits for people.

    With `at`, how much waited then.
    """
    waiting = await client.count_inbox(at=at)
    letters = waiting.get("dead_letter", 0)
    return {"/inbox": sum(waiting.values()), "/dead-letters": letters}
