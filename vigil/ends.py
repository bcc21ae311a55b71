"""Waiting for episodes to end, as the rows tell."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from projections.postgres.reader import show_episode
from streams.clock import SystemClock
from streams.model.events import EndStatus
from streams.subjects import Stack
from vigil.errors import Trouble

LOOK_S: Final = 0.2
"""Between two looks at the rows, in seconds."""

ENDS: Final = frozenset(each.value for each in EndStatus)

_CLOCK: Final = SystemClock()


async def wait_ended(
    pool: Pool, stack: Stack, episode_id: UUID, *, until_s: float, said_s: float
) -> Row:
    """Return the row of an episode once it has ended.

    Args:
        pool: of the rows.
        stack: the episode's.
        episode_id: the episode's, which may not be opened yet.
        until_s: until when to wait, on the monotonic clock, in seconds.
        said_s: how long that is, as whoever waits has said it.

    Raises:
        Trouble: it has not ended by then.
        QueryRefused: there are no rows.
        PostgresUnavailable: no server there, or it does not let us in.
    """
    while True:
        row = await show_episode(pool, stack, episode_id)
        if row is not None and row["status"] in ENDS:
            return row
        if _CLOCK.monotonic_s() >= until_s:
            status = "not opened" if row is None else row["status"]
            raise Trouble(f"episode {episode_id} is still {status} after {said_s:g} s")
        await _CLOCK.sleep(LOOK_S)
