"""I4 and I5 with real servers: they go, they come back, nothing is lost and nothing is repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.cluster import Cluster

EPISODES: Final = 500
POSTGRES_AWAY_S: Final = 12.0
"""So long that a projector waits as long between two attempts as it ever does, in seconds."""
LOG_LINES_MAX: Final = 150


@pytest.mark.nightly
async def test_servers_that_restart_in_the_middle_lose_and_repeat_nothing(tmp_path: Path):
    async with Cluster(tmp_path) as cluster:
        await restart_in_the_middle(cluster)


async def restart_in_the_middle(cluster: Cluster) -> None:
    nodes = [await cluster.start("n1"), await cluster.start("n2")]
    orders = {f"e{n}": {"order": f"o{n}", "late_days": 1 + n % 10} for n in range(EPISODES)}

    await cluster.publish("order.placed", dict(list(orders.items())[: EPISODES // 2]))
    cluster.postgres.stop()
    cluster.nats.restart()
    await cluster.publish("order.placed", dict(list(orders.items())[EPISODES // 2 :]))
    await asyncio.sleep(POSTGRES_AWAY_S)  # The outage itself is what takes this long.
    cluster.postgres.restart()

    await cluster.wait_rows("select 1 from episodes where status = 'done'", EPISODES, most_s=90)
    await cluster.wait_rows("select 1 from active_findings", EPISODES, most_s=10)
    repeated = "select 1 from findings where journal_seq is not null and raise_no <> 1"
    await cluster.wait_rows(repeated, 0, most_s=1)
    ends = "select 1 from finding_events"
    await cluster.wait_rows(ends, EPISODES, most_s=1)
    for node in nodes:
        logged = node.logged()
        assert "Traceback" not in logged
        others = [line for line in logged.splitlines() if "finding raised" not in line]
        assert len(others) < LOG_LINES_MAX
        assert node.stop() == 0
