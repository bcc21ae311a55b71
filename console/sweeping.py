"""A sweep from the command line: the rows name candidates, the sweeper finds out what is true."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from console.reading import ask
from console.settings import Reading
from console.work import connected
from engine.runtime.sweeper import Candidate, Sweeper
from engine.sweep import Verdict
from projections.postgres.reader import Row, list_silent_episodes
from streams.clock import SystemClock

_CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class Sweep:
    """What came of one sweep."""

    counts: Mapping[str, int]
    """Verdict → episodes, for every verdict."""
    episodes: Sequence[Row]
    """What each candidate's row says, and its `verdict`."""


def sweep(reading: Reading, *, stale_after_s: float, is_dry: bool) -> Sweep:
    """Call nodes to episodes that show nothing since `stale_after_s` and that nobody holds.

    Args:
        reading: the settings.
        stale_after_s: how long an episode may be silent.
        is_dry: only find out.

    Raises:
        PostgresUnavailable, Trouble: there are no rows to look at.
        Unavailable: the log is away. Sweep again.
    """
    before = _CLOCK.now() - timedelta(seconds=stale_after_s)
    rows = ask(reading, lambda pool: list_silent_episodes(pool, reading.stack, before=before))
    verdicts = asyncio.run(_look_at(reading, rows, stale_after_s=stale_after_s, is_dry=is_dry))
    found = Counter(verdict.value for verdict in verdicts)
    return Sweep(
        counts={verdict.value: found[verdict.value] for verdict in Verdict},
        episodes=[row | {"verdict": v.value} for row, v in zip(rows, verdicts, strict=True)],
    )


async def _look_at(
    reading: Reading, rows: Sequence[Row], *, stale_after_s: float, is_dry: bool
) -> Sequence[Verdict]:
    async with connected(reading) as ports:
        sweeper = Sweeper(ports, _CLOCK, reading.node, stale_after_s, is_dry)
        return await sweeper.sweep(_candidate(row) for row in rows)


def _candidate(row: Row) -> Candidate:
    return Candidate(actor_id=str(row["actor_id"]), episode_id=str(row["episode_id"]))
