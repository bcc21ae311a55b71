"""A node that is told to stop ends, whatever its code does, and says who held it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.usercode.leavable import LEFT
from streams.jetstream import connect
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster, wait_until
from tests.databases import Database
from vigil.serving.exit import EXIT_S
from vigil.serving.loop_watch import BLOCKED

APP = "tests.vigil.hanging:app"
WAIT_S = 30.0


async def ended(cluster: Cluster, status: str, count: int = 1) -> None:
    """Wait until so many episodes have this status."""
    sql = f"SELECT 1 FROM episodes WHERE status = '{status}'"  # noqa: S608 - a word of ours
    await cluster.wait_rows(sql, count, most_s=WAIT_S)


async def test_a_node_ends_by_force_soon_after_its_grace_and_names_what_holds_it(
    tmp_path: Path, database: Database
):
    async with Cluster(tmp_path, database=database) as cluster:
        node = await cluster.start("n1", app=APP, VIGIL_GRACE_S="0.2")
        async with connect(cluster.nats_url, stack=Stack()) as ports:
            await ports.domain_events.publish("task.stays", {}, id="e1")
            await ports.domain_events.publish("thread.stays", {}, id="e2")
            await ended(cluster, "done", 2)
            await ports.domain_events.publish("loop.blocked", {}, id="e3")
            await wait_until(lambda: node.says(BLOCKED), "it is blocked", most_s=WAIT_S)

        assert node.stop() == 3

        (line,) = [each for each in node.events() if "by force" in each["event"]]
        assert line["after_s"] == 0.2 + EXIT_S
        for held_by in ("in loop_is_blocked", "in swallow, in", "in thread uploader"):
            assert any(held_by in each for each in line["held_by"]), line


@pytest.mark.parametrize("event", ["function.hangs", "tool.hangs"])
async def test_an_episode_whose_code_catches_everything_fails_and_its_node_goes_on_and_stops(
    tmp_path: Path, database: Database, event
):
    async with Cluster(tmp_path, database=database) as cluster:
        node = await cluster.start("n1", app=APP, VIGIL_GRACE_S="2")
        async with connect(cluster.nats_url, stack=Stack()) as ports:
            await ports.domain_events.publish(event, {}, id="e1")
            await ended(cluster, "failed")
            await wait_until(lambda: node.says(LEFT), "it is left", most_s=WAIT_S)
            await ports.domain_events.publish("all.well", {}, id="e2")
            await ended(cluster, "done")

        assert node.stop() == 0
