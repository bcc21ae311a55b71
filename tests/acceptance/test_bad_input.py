"""I5: whatever is wrong with what comes in ends in a dead letter or a clear error, alone."""

from __future__ import annotations

import pytest

from tests.acceptance.cluster import Cluster

pytestmark = pytest.mark.nightly

GOOD = {"order": "good"}


async def test_bad_input_is_told_apart_and_stops_nothing_else(cluster: Cluster):
    node = await cluster.start("n1")

    await cluster.publish("order.placed", {"not-json": b"{order", "a-list": b"[1, 2]"})
    await cluster.publish("order.placed", {"huge": {"order": "x" * 600_000}})
    await cluster.publish("odd.nonsense", {"e1": GOOD})
    await cluster.publish("odd.unencodable", {"e2": GOOD})
    await cluster.publish("odd.severity", {"e3": GOOD})
    await cluster.publish("odd.filtered", {"e4": GOOD, "e5": {**GOOD, "region": "eu"}})
    await cluster.publish("order.placed", {"good": GOOD})

    await cluster.wait_rows("select 1 from dead_letters", 3, most_s=20)
    await cluster.wait_rows("select 1 from episodes where finished_at is not null", 5, most_s=20)

    dead = await cluster.query("select reason, detail, payload_size_bytes from dead_letters")
    assert {row["reason"] for row in dead} == {"unreadable", "not_an_object", "too_large"}
    assert all(row["detail"] for row in dead)

    ends = await cluster.query(
        "select expectation_id, status, error_class, error_detail from episodes"
    )
    failed = {row["expectation_id"]: row for row in ends if row["status"] == "failed"}
    assert {name: row["error_class"] for name, row in failed.items()} == {
        "nonsense": "invalid_action",
        "unencodable": "unencodable",
        "severity": "invalid_finding",
    }
    assert "returned a str" in failed["nonsense"]["error_detail"]
    assert "complex" in failed["unencodable"]["error_detail"]
    assert "low, medium, high, critical" in failed["severity"]["error_detail"]
    done = {row["expectation_id"] for row in ends if row["status"] == "done"}
    assert done == {"filtered", "on_time"}

    logged = node.logged()
    assert "lacks a key that the filter needs" in logged
    assert "Traceback" not in logged
    assert node.stop() == 0
