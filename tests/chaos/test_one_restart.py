"""Schedules that ask people restart each host once, on real nodes that are killed meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from engine.operations.decide_request import ApprovalTarget, decide_request
from streams.jetstream import connect
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster
from tests.chaos.stage import kept_going
from tests.chaos.watchers import RESTARTS

pytestmark = pytest.mark.nightly

APP: Final = "tests.chaos.watchers:app"

TICKS: Final = 10

WAIT_S: Final = 120.0

KILLED_EVERY_S: Final = 3.0

ASKED: Final = """
    SELECT actor_id, block.episode_id, block.plan_hash
    FROM episode_blocks AS block JOIN episodes USING (stack, episode_id)
    WHERE resolution IS NULL ORDER BY blocked_at
"""

DONE: Final = "SELECT actor_id FROM episodes WHERE status = 'done'"

OVERLAPPING: Final = """
    SELECT 1 FROM episodes AS one JOIN episodes AS other USING (stack, actor_id)
    WHERE actor_id = 'single' AND one.queued_at < other.queued_at
        AND (one.finished_at IS NULL OR one.finished_at > other.queued_at)
"""


@asynccontextmanager
async def killed(cluster: Cluster, *, seed: int) -> AsyncIterator[None]:
    """Kill one of the nodes that run, every few seconds."""
    chance = random.Random(seed)

    async def kill() -> None:
        while True:
            await asyncio.sleep(KILLED_EVERY_S)
            running = [node for node in cluster.nodes if node.is_running]
            if len(running) > 1:
                chance.choice(running).kill()

    killing = asyncio.create_task(kill())
    try:
        yield
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)


async def test_one_approval_restarts_a_host_once_whichever_nodes_are_killed(tmp_path: Path):
    restarts = tmp_path / "restarts"
    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.nats_url, stack=Stack()) as ports,
        kept_going(cluster, ("n1", "n2", "n3"), app=APP, **{RESTARTS: str(restarts)}),
        killed(cluster, seed=7),
    ):
        await cluster.wait_at_least(ASKED, TICKS + 1, most_s=WAIT_S)
        oldest = {row[0]: row[1:] for row in reversed(await cluster.query(ASKED))}
        for episode_id, plan_hash in oldest.values():
            target = ApprovalTarget("episode", str(episode_id))
            await decide_request(ports, target, "approve", plan_hash=plan_hash, by="ann")
        await cluster.wait_at_least(DONE, TICKS + 1, most_s=WAIT_S)

        keys = {tuple(line.split()) for line in restarts.read_text().splitlines()}
        assert Counter(host for host, _ in keys) == {"merged": 1, "single": 1}
        assert not await cluster.query(OVERLAPPING)
