"""The log of an episode while it grows, from the rows, which follow the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from projections.postgres.reader import list_log_lines, show_episode
from streams.clock import SystemClock
from streams.model.triggers import LogStrategy
from vigil.asking.rows import ENDS, LOOK_S
from vigil.errors import Trouble

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Row
    from streams.subjects import Stack

OPENED_S_MAX: Final = 10.0
"""How long an episode may be missing, in seconds: it may have been fired a moment ago."""

_CLOCK: Final = SystemClock()


async def live_log(
    pool: Pool,
    stack: Stack,
    episode_id: UUID,
    *,
    timeout_s: float,
    strategy: LogStrategy | None = None,
) -> AsyncIterator[Row]:
    """Yield the lines of the log, once each, until the episode has ended.

    Raises `Trouble` if it is not there after `OPENED_S_MAX`, or has not ended after `timeout_s`.
    """
    began_s, yielded = _CLOCK.monotonic_s(), set[object]()
    while True:
        episode = await show_episode(pool, stack, episode_id)
        # Read after the row: what is missing then comes with the next look.
        for line in await list_log_lines(pool, stack, episode_id, strategy=strategy):
            if (place := _place(line)) not in yielded:  # guard: tail-prints-once
                yielded.add(place)
                yield line
        if episode is not None and episode["status"] in ENDS:
            return
        waited_s = _CLOCK.monotonic_s() - began_s
        if episode is None and waited_s >= min(OPENED_S_MAX, timeout_s):
            raise Trouble(f"no episode {episode_id} in stack {stack.name}")
        if waited_s >= timeout_s:
            raise Trouble(f"episode {episode_id} has not ended after {timeout_s:g} s")
        await _CLOCK.sleep(LOOK_S)


def why_silent(episode: Row, strategy: LogStrategy | None) -> str:
    """Return why the log of `episode` has no line, in words."""
    shown = strategy or episode["log_strategy"]
    if shown == LogStrategy.SUMMARY_ONLY:
        return f"it is still {episode['status']}; its summary is printed when it has ended"
    return f"nothing to show: its log strategy is {shown}"


def _place(line: Row) -> object:
    # Not `position`: what is projected later may have happened earlier.
    return tuple(line[each] for each in ("kind", "step_no", "name", "at", "says"))
