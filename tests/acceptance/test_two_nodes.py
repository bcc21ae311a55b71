"""I1 with real processes: however often an event comes and whoever sees it, one episode.

With 100 events `tests/vigil/test_processes.py` sees that nodes share them and each has one episode;
every simulated world sees that it has no other.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.acceptance.cluster import Cluster
from tests.size import size

pytestmark = pytest.mark.nightly

EVENTS: Final = size("shared", short=600, full=2_000)
SHARE_MIN: Final = EVENTS // 5
ENDED: Final = "select 1 from episodes where status = 'done'"


async def test_two_nodes_finish_every_event_once_and_share_the_work(cluster: Cluster):
    await cluster.start("n1")
    await cluster.start("n2")
    orders = {f"e{n}": {"order": f"o{n}"} for n in range(EVENTS)}

    await cluster.publish("order.placed", orders)
    await cluster.wait_rows(ENDED, EVENTS, most_s=90)

    starts = await cluster.query("select attempts from episodes")
    shares = await cluster.query("select node, count(*) from episodes group by node")
    assert {row["attempts"] for row in starts} == {1}
    assert {row["node"] for row in shares} == {"n1", "n2"}
    assert min(row["count"] for row in shares) >= SHARE_MIN

    # The same ids again: once as the server's own deduplication sees them, once past it.
    await cluster.publish("order.placed", orders)
    await cluster.publish("order.placed", orders, id_header="ce-id")
    await cluster.publish("order.placed", {"sentinel": {"order": "sentinel"}})
    await cluster.wait_rows(f"{ENDED} and subject_id = 'sentinel'", 1, most_s=60)
    await cluster.wait_rows("select 1 from episodes", EVENTS + 1, most_s=1)

    again = {f"again{id_}": payload for id_, payload in orders.items()}
    await cluster.publish("order.placed", again)
    await cluster.wait_rows(ENDED, 2 * EVENTS + 1, most_s=90)
    assert (await cluster.query("select max(attempts) from episodes"))[0][0] == 1
    assert [node.stop() for node in cluster.nodes] == [0, 0]
