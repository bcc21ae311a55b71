"""Restarts what no node is running: what the rows show as silent is looked at in the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from engine.episodes.recovery import SweepVerdict
from engine.operations.sweep import Candidate, EpisodeSweeper, InstanceSweeper
from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from projections.postgres.reader import list_silent_episodes, list_silent_instances
from streams.clock import Clock
from streams.ports.all import Ports
from vigil.asking.instances import advice, by_workflow, unserved_instances


@dataclass(frozen=True)
class RecoverReport:
    """What was found, and restarted."""

    counts: Mapping[str, int]
    """Verdict → episodes and instances, for every verdict."""
    episodes: Sequence[Row]
    """The row of each candidate, and its `verdict`."""
    instances: Sequence[Row]
    """The same, of instances of workflows."""
    unserved: Sequence[Row]
    """Open instances whose workflow no node runs: nobody could restart them."""

    @property
    def advice(self) -> Sequence[str]:
        """What to do about these, in a line for each workflow."""
        return [advice(each) for each in by_workflow(self.unserved)]


async def recover(
    ports: Ports, pool: Pool, *, node: str, clock: Clock, stale_after_s: float, is_dry: bool
) -> RecoverReport:
    """Restart what shows no progress since `stale_after_s` seconds and that no node is running."""
    before = clock.now() - timedelta(seconds=stale_after_s)
    episodes = await list_silent_episodes(pool, ports.stack, before=before)
    instances = await list_silent_instances(pool, ports.stack, before=before)
    sweeper = EpisodeSweeper(ports, clock, node, stale_after_s, is_dry)
    of_episodes = await sweeper.sweep(
        Candidate(actor_id=str(row["actor_id"]), episode_id=str(row["episode_id"]))
        for row in episodes
    )
    others = InstanceSweeper(ports, clock, stale_after_s, is_dry)
    of_instances = await others.sweep(str(row["instance_id"]) for row in instances)
    found = Counter((*of_episodes, *of_instances))
    return RecoverReport(
        counts={verdict.value: found[verdict] for verdict in SweepVerdict},
        episodes=_judged(episodes, of_episodes),
        instances=_judged(instances, of_instances),
        unserved=await unserved_instances(ports, pool),
    )


def _judged(rows: Sequence[Row], verdicts: Sequence[SweepVerdict]) -> list[Row]:
    return [row | {"verdict": v.value} for row, v in zip(rows, verdicts, strict=True)]
