"""Nodes that only wake actors, with real processes: what they open runs elsewhere.

`tests/vigil/test_modes.py` sees it of one episode, and that a mode outlives its node.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.acceptance.cluster import ROOT, Cluster, NodeProcess, wait_until
from tests.vigil.program import Vigil

pytestmark = pytest.mark.nightly

EVENTS: Final = 60
"""Published at a time; two nodes share them."""

ENDED_S_MAX: Final = 30.0
SWITCHED_S_MAX: Final = 10.0
DONE: Final = "select 1 from episodes where status = 'done'"
RAN: Final = "select count(*) from episodes where node = $1"


async def publish(cluster: Cluster, first: int) -> None:
    """Publish a number of orders, none of which was published before."""
    orders = {f"e{n}": {"order": f"o{n}"} for n in range(first, first + EVENTS)}
    await cluster.publish("order.placed", orders)


def say(cluster: Cluster, *words: str) -> None:
    """Do as an operator: `vigil mode …`."""
    servers = {"VIGIL_NATS_URL": cluster.nats_url, "VIGIL_POSTGRES_DSN": cluster.postgres.dsn}
    done = Vigil(ROOT, **servers).run("mode", *words)
    assert done.returncode == 0, done.stderr


def runs(node: NodeProcess) -> bool:
    """Return whether a node has said last that it runs episodes."""
    switched = [line for line in node.events() if line["event"] == "mode in force"]
    return bool(switched) and bool(switched[-1]["runs_episodes"])


async def requests_of(cluster: Cluster, node: str) -> set[tuple[str, str]]:
    """Return status and claimant of whatever `node` has asked for."""
    rows = await cluster.query(
        "select status, claimed_by from trigger_requests where source_node = $1", node
    )
    assert rows, f"{node} opened nothing"
    return {(row["status"], row["claimed_by"]) for row in rows}


async def test_what_a_node_opens_that_only_triggers_runs_on_another_and_so_when_they_change_places(
    cluster: Cluster,
):
    first = await cluster.start("n1", VIGIL_MODE="trigger_only")
    second = await cluster.start("n2")
    await publish(cluster, 0)
    await cluster.wait_rows(DONE, EVENTS, most_s=ENDED_S_MAX)
    assert await requests_of(cluster, "n1") == {("completed", "n2")}
    assert {row["node"] for row in await cluster.query("select node from episodes")} == {"n2"}

    # Live, with work on its way.
    await publish(cluster, EVENTS)
    say(cluster, "n1", "full")
    say(cluster, "n2", "trigger_only")
    await wait_until(lambda: runs(first) and not runs(second), "both", most_s=SWITCHED_S_MAX)
    await cluster.wait_rows(DONE, 2 * EVENTS, most_s=ENDED_S_MAX)
    await publish(cluster, 2 * EVENTS)
    await cluster.wait_rows(DONE, 3 * EVENTS, most_s=ENDED_S_MAX)
    late = await cluster.query(
        "select distinct node from episodes where trigger_ref->>'event_id' = any($1::text[])",
        [f"e{n}" for n in range(2 * EVENTS, 3 * EVENTS)],
    )
    assert [row["node"] for row in late] == ["n1"]
    assert await requests_of(cluster, "n2") == {("completed", "n1")}

    # What was said outlives the node.
    assert second.stop() == 0
    ran_before = await cluster.query(RAN, "n2")
    again = await cluster.start("n2")
    await publish(cluster, 3 * EVENTS)
    await cluster.wait_rows(DONE, 4 * EVENTS, most_s=ENDED_S_MAX)
    assert await cluster.query(RAN, "n2") == ran_before
    assert [again.stop(), first.stop()] == [0, 0]
