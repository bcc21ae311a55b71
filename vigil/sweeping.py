"""A sweep from the command line: the rows name candidates, the sweeper finds out what is true."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from engine.episodes.recovery import Verdict
from engine.operations.sweep import Candidate, InstanceSweeper, Sweeper
from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from projections.postgres.reader import list_silent_episodes, list_silent_instances
from streams.clock import SystemClock
from vigil.reading import ask
from vigil.settings import Reading
from vigil.unserved import unserved_instances
from vigil.work import connected

_CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class Sweep:
    """What came of one sweep."""

    counts: Mapping[str, int]
    """Verdict → episodes and instances, for every verdict."""
    episodes: Sequence[Row]
    """What the row of each candidate says, and its `verdict`."""
    instances: Sequence[Row]
    """The same, of instances of workflows."""
    unserved: Sequence[Row]
    """Instances that go on whose workflow no node runs: nobody could follow a call to them."""


def sweep(reading: Reading, *, stale_after_s: float, is_dry: bool) -> Sweep:
    """Call nodes to what shows nothing since `stale_after_s` and that nobody sees to.

    Args:
        reading: the settings.
        stale_after_s: how long an episode or an instance may be silent.
        is_dry: only find out.

    Raises:
        PostgresUnavailable, Trouble: there are no rows to look at.
        Unavailable: the log is away. Sweep again.
    """
    before = _CLOCK.now() - timedelta(seconds=stale_after_s)
    episodes, instances = ask(reading, lambda pool: _silent(pool, reading, before))
    looking = _look_at(reading, episodes, instances, stale_after_s=stale_after_s, is_dry=is_dry)
    of_episodes, of_instances = asyncio.run(looking)
    found = Counter((*of_episodes, *of_instances))
    return Sweep(
        counts={verdict.value: found[verdict] for verdict in Verdict},
        episodes=_judged(episodes, of_episodes),
        instances=_judged(instances, of_instances),
        unserved=asyncio.run(unserved_instances(reading)),
    )


async def _silent(pool: Pool, reading: Reading, before: datetime) -> tuple[list[Row], list[Row]]:
    """Return the rows of episodes and of instances that have shown nothing since."""
    episodes = await list_silent_episodes(pool, reading.stack, before=before)
    return episodes, await list_silent_instances(pool, reading.stack, before=before)


async def _look_at(
    reading: Reading,
    episodes: Sequence[Row],
    instances: Sequence[Row],
    *,
    stale_after_s: float,
    is_dry: bool,
) -> tuple[Sequence[Verdict], Sequence[Verdict]]:
    async with connected(reading) as ports:
        sweeper = Sweeper(ports, _CLOCK, reading.node, stale_after_s, is_dry)
        of_episodes = await sweeper.sweep(_candidate(row) for row in episodes)
        others = InstanceSweeper(ports, _CLOCK, stale_after_s, is_dry)
        return of_episodes, await others.sweep(str(row["instance_id"]) for row in instances)


def _judged(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> list[Row]:
    return [row | {"verdict": v.value} for row, v in zip(rows, verdicts, strict=True)]


def _candidate(row: Row) -> Candidate:
    return Candidate(actor_id=str(row["actor_id"]), episode_id=str(row["episode_id"]))
