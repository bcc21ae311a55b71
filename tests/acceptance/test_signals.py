"""Bursts of signals to real processes of which some are killed: none is lost, all are in order.

60 episodes by default. `make signals` has 1,000.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import cycle
from random import Random
from typing import Final

import nats as nats_client
import pytest

from tests.acceptance.cluster import Cluster, NodeProcess
from tests.acceptance.signalled import WAITS
from tests.size import size

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.signalled:app"
EPISODES: Final = size("signalled", short=60, full=1_000)
KINDS: Final = ("function", "class", "steps")
PAUSES_S: Final = (0.0, 0.005, 0.02, 0.05)
"""Between two signals of a burst."""

AT_ONCE: Final = 20
"""Bursts at a time."""

KILL_EVERY: Final = 20
"""Bursts from one kill of a node to the next."""

OF_CLERK: Final = "from episodes where actor_id = 'clerk'"
"""Not those that begin workflows."""

WAITING: Final = f"select 1 {OF_CLERK} and status = 'blocked'"
ENDED: Final = f"select 1 {OF_CLERK} and status = 'done'"
ENDED_S_MAX: Final = 60.0 + EPISODES * 0.3
LEASE_S: Final = "3"


class Kills:
    """Kills one node after the other, and starts another one instead."""

    def __init__(self, cluster: Cluster, nodes: Sequence[NodeProcess]) -> None:
        self._cluster, self._nodes, self.count = cluster, list(nodes), 0
        self._turn = asyncio.Lock()

    async def kill(self) -> None:
        async with self._turn:
            self._nodes.pop(0).kill()
            self.count += 1
            name = f"n{3 + self.count}"
            self._nodes.append(await self._cluster.start(name, app=APP, VIGIL_LEASE_S=LEASE_S))


async def send_bursts(cluster: Cluster, refs: Sequence[str], kills: Kills) -> None:
    """Send three signals to each reference, and kill nodes meanwhile."""
    client = await nats_client.connect(cluster.nats_url)
    room, pauses, count = asyncio.Semaphore(AT_ONCE), cycle(PAUSES_S), 0

    async def burst(ref: str, pause_s: float) -> None:
        nonlocal count
        async with room:
            for number in range(WAITS):
                data = json.dumps({"ref": ref, "result": number, "by": "bank"}).encode()
                headers = {"Nats-Msg-Id": f"{ref}.{number}"}
                subject = "vigil.event.wait.resolved"
                await client.jetstream().publish(subject, data, headers=headers)
                await asyncio.sleep(pause_s)  # The subject of the test: how close they come.
            count += 1
            if count % KILL_EVERY == 0:
                await kills.kill()

    try:
        async with asyncio.TaskGroup() as group:
            for ref in refs:
                group.create_task(burst(ref, next(pauses)))
    finally:
        await client.close()


async def test_of_bursts_of_signals_none_is_lost_and_all_are_in_order_though_nodes_are_killed(
    cluster: Cluster,
):
    nodes = [
        await cluster.start(each, app=APP, VIGIL_LEASE_S=LEASE_S) for each in ("n1", "n2", "n3")
    ]
    refs = [f"ref:{number}" for number in range(EPISODES)]
    for kind in KINDS:
        mine = {ref: {"ref": ref} for number, ref in enumerate(refs) if KINDS[number % 3] == kind}
        await cluster.publish(f"{kind}.began", mine)
    await cluster.wait_rows(WAITING, EPISODES, most_s=ENDED_S_MAX)
    kills = Kills(cluster, nodes)
    await send_bursts(cluster, Random(7).sample(refs, len(refs)), kills)
    await cluster.wait_rows(ENDED, EPISODES, most_s=ENDED_S_MAX)
    rows = await cluster.query(f"select classification {OF_CLERK}")
    got = [json.loads(row["classification"]) for row in rows]
    assert {each["ref"]: each["got"] for each in got} == {ref: [*range(WAITS)] for ref in refs}
    assert await cluster.query("select 1 from dead_letters") == []
    assert kills.count >= EPISODES // KILL_EVERY
