"""Findings end on time, whoever runs then: all nodes are stopped half-way, and others are started.

What is asserted of times compares the clock of the machine, which all processes share, with the
journal. Nothing expires before its time. A finding expires at most `LATE_S_MAX` after its time, or
after a node is up again if its time came while none was.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from streams.jetstream import connect
from streams.layout import Kind
from streams.model.events import FindingEvent, FindingExpired, FindingRaised
from streams.subjects import Stack
from tests.acceptance.agreement import Lives, journal
from tests.acceptance.cluster import Cluster, wait_until
from tests.contracts.samples import opened

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.expiring:app"

FINDINGS: Final = 200

SPREAD_S: Final = 10.0
"""Over how long the ends of the findings are spread, in seconds."""

FIRST_S: Final = 6.0
"""How long the first one lives: longer than it takes to raise all, on a busy machine."""

LATE_S_MAX: Final = 1.5

WAIT_S_MAX: Final = 60.0

EXPIRED: Final = "select 1 from findings where status = 'expired'"


@pytest.mark.timeout(180)
async def test_findings_expire_in_time_though_all_nodes_are_replaced(cluster: Cluster):
    await start_two(cluster, "n1", "n2")
    payloads = {
        f"e{n}": {"key": f"k{n}", "ttl_s": FIRST_S + SPREAD_S * n / FINDINGS}
        for n in range(FINDINGS)
    }
    await cluster.publish("thing.seen", payloads)
    half = FINDINGS // 2
    await cluster.wait_rows(f"{EXPIRED} limit {half}", half, most_s=WAIT_S_MAX)
    assert [node.stop() for node in cluster.nodes] == [0, 0]
    down = datetime.now(UTC)
    up = await start_two(cluster, "n3", "n4")
    await cluster.wait_rows(EXPIRED, FINDINGS, most_s=WAIT_S_MAX)

    lives = await journal(cluster.nats_url)
    found = findings_of(lives)
    assert len(found) == FINDINGS
    assert {tuple(type(event) for event in events) for events in found.values()} == {
        (FindingRaised, FindingExpired)
    }
    ends = [events[-1].finding for events in found.values()]
    late_s = [lateness_s(end.cleared_at, end.expires_at, down=down, up=up) for end in ends]
    assert all(end.cleared_at >= end.expires_at for end in ends)
    assert max(late_s) <= LATE_S_MAX
    assert sorted(await told(cluster)) == sorted(found)
    assert await cluster.differences(lives) == []
    assert [node.stop() for node in cluster.nodes[2:]] == [0, 0]


def findings_of(lives: Lives) -> dict[str, list[FindingEvent]]:
    """Return what happened to each finding."""
    return {
        key: [event for record in records for event in record.commit.events]
        for (kind, key), records in lives.items()
        if kind is Kind.FINDING
    }


def lateness_s(ended: datetime, due: datetime, *, down: datetime, up: datetime) -> float:
    """Return how long after its time, or after a node was up again, a finding has ended."""
    could = due if ended <= down else max(due, up)
    return (ended - could) / timedelta(seconds=1)


async def told(cluster: Cluster) -> list[str]:
    """Return the keys of the findings that the world was told have expired, once all are there
    and no more come."""
    async with (
        connect(cluster.nats_url, stack=Stack()) as ports,
        opened(ports.domain_events.open("test", ["finding.expired"], after=0)) as source,
    ):
        keys: list[str] = []
        async with asyncio.timeout(WAIT_S_MAX):
            while (events := await source.receive(room=FINDINGS, wait_s=2.0)) or (
                len(keys) < FINDINGS
            ):
                keys += [str(each.content.payload["finding_key"]) for each in events]
                await asyncio.gather(*(each.ack() for each in events))
    return keys


async def start_two(cluster: Cluster, *names: str) -> datetime:
    """Start nodes at the same time, wait until all are up, and return when the first was."""
    nodes = [cluster.launch(name, app=APP) for name in names]
    for node in nodes:
        await wait_until(node.is_up, f"{node.name} is up", most_s=WAIT_S_MAX)
    ups = [line for node in nodes for line in node.events() if line["event"] == "node up"]
    return min(datetime.fromisoformat(line["timestamp"]) for line in ups)
