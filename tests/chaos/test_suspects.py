"""An episode that kills its process ends, and nobody else does, whoever ran beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from streams.jetstream import connect
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster
from tests.chaos.stage import kept_going

pytestmark = pytest.mark.nightly

APP: Final = "tests.chaos.poisonous:app"

INNOCENTS: Final = 12

WAIT_S: Final = 120.0


async def ends(cluster: Cluster, actor: str) -> list[tuple[str, str]]:
    sql = "SELECT status, coalesce(error_class, '') FROM episodes WHERE actor_id = $1"
    return [(row[0], row[1]) for row in await cluster.query(sql, actor)]


async def test_episodes_that_kill_their_process_end_and_nobody_beside_them_does(tmp_path: Path):
    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.nats_url, stack=Stack()) as ports,
        kept_going(cluster, ("n1", "n2", "n3"), app=APP),
    ):
        for number in range(INNOCENTS):
            await ports.domain_events.publish("innocent.called", {}, id=f"i{number}")
        for number in range(2):
            await ports.domain_events.publish("poison.called", {}, id=f"p{number}")
        sql = "SELECT 1 FROM episodes WHERE finished_at IS NOT NULL"
        await cluster.wait_rows(sql, INNOCENTS + 2, most_s=WAIT_S)

        assert await ends(cluster, "innocent") == [("done", "")] * INNOCENTS
        assert await ends(cluster, "poison") == [("failed", "attempts_exhausted")] * 2
        crashed = [line for node in cluster.nodes for line in node.events() if "crash" in line]
        of_poison = [line["crash"] for line in crashed if line["actor"] == "poison"]
        assert of_poison == ["exit status 1"] * 2


async def test_an_episode_that_blocks_the_loop_ends_and_its_last_process_is_killed(tmp_path: Path):
    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.nats_url, stack=Stack()) as ports,
        kept_going(cluster, ("n1", "n2", "n3"), app=APP),
    ):
        await ports.domain_events.publish("poison.blocks", {}, id="p1")
        for number in range(INNOCENTS):
            await ports.domain_events.publish("innocent.called", {}, id=f"i{number}")
        sql = "SELECT 1 FROM episodes WHERE finished_at IS NOT NULL"
        await cluster.wait_rows(sql, INNOCENTS + 1, most_s=WAIT_S)

        assert await ends(cluster, "innocent") == [("done", "")] * INNOCENTS
        assert await ends(cluster, "poison") == [("failed", "attempts_exhausted")]
