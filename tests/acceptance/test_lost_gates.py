"""The gates are deleted under load, and made anew from the log: nothing is told twice or left out.

The server drops an id that comes again within two minutes. It is made to forget them, as it has
once a person comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

import nats as nats_py

from engine.reactor.reactor import followed
from engine.reactor.rebuild import read_commits
from engine.reactor.states import AggregateStates
from engine.runtime.publish import PublicEvent
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.ports.domain_events import DomainEvent
from streams.subjects import Stack
from tests.acceptance.cluster import POLL_S, Cluster
from tests.acceptance.remembering import THRESHOLD
from tests.acceptance.test_lost_past import ask, command
from vigil.errors import EXIT_LOST

APP: Final = "tests.acceptance.remembering:app"
DISKS: Final = 20
ORDERS: Final = 400
FORGET_NS: Final = 100_000_000
"""The shortest time for which a server remembers ids."""
FORGET_S_MAX: Final = 10.0


class Load:
    """Events that come for as long as the test runs, each with an id of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent = 0

    async def send(self, count: int) -> None:
        """Publish so many orders, and as many events about what gates remember."""
        for _ in range(count):
            n, self.sent = self.sent, self.sent + 1
            for name, payload in (
                ("order.placed", {"order": f"o{n}"}),
                ("disk.measured", {"disk": f"d{n % DISKS}"}),
                ("host.seen", {"host": "h"}),
                ("api.called", {"n": n}),
            ):
                await self.cluster.publish(name, {f"{name}.{n}": payload})


async def forget_ids(cluster: Cluster) -> None:
    """Have the server forget the ids of the events that it has, as it does after two minutes."""
    config = (await ask(cluster, "STREAM.INFO.vigil-events"))["config"]
    client = await nats_py.connect(cluster.nats_url)
    try:

        async def is_known() -> bool:
            headers = {"Nats-Msg-Id": "known"}
            ack = await client.jetstream().publish("vigil.event.a.b", b"{}", headers=headers)
            return bool(ack.duplicate)

        await is_known()
        await ask(cluster, "STREAM.UPDATE.vigil-events", {**config, "duplicate_window": FORGET_NS})
        deadline_s = time.monotonic() + FORGET_S_MAX
        while await is_known():
            assert time.monotonic() < deadline_s, "the server still knows the id"
            await asyncio.sleep(POLL_S)
        await ask(cluster, "STREAM.UPDATE.vigil-events", config)
    finally:
        await client.close()


async def told_and_due(cluster: Cluster) -> tuple[Counter[str], set[str]]:
    """Return how often each public event is there, and those that follow from the commits."""
    async with connect(cluster.nats_url, stack=Stack("vigil")) as ports:
        told: Counter[str] = Counter()
        after = 0
        while page := await ports.domain_events.page(after=after):
            after = page[-1].seq
            told.update(each.id for each in page if isinstance(each, DomainEvent) and each.follows)
        due: set[str] = set()
        for stream, partition in followed(ports.stack):
            states = AggregateStates(ports, SystemClock())
            head = await ports.log.head(stream, partition=partition)
            async for records in read_commits(ports, (stream, partition), after=0, up_to=head):
                for record in records:
                    found = await states.effects_of(record)
                    due |= {each.id for each in found if isinstance(each, PublicEvent)}
        return told, due


async def test_gates_that_are_deleted_under_load_are_made_anew_and_nothing_happens_twice(
    cluster: Cluster,
):
    vigil, load = command(cluster), Load(cluster)
    nodes = [await cluster.start(each, app=APP) for each in ("n1", "n2")]
    await load.send(THRESHOLD)
    failed = "select 1 from episodes where expectation_id = 'calls' and status = 'failed'"
    await cluster.wait_rows(failed, THRESHOLD, most_s=60)
    loading = asyncio.create_task(load.send(ORDERS - THRESHOLD))
    done = "select 1 from episodes where expectation_id = 'orders' and status = 'done'"
    await cluster.wait_at_least(done, ORDERS // 4, most_s=60)

    await ask(cluster, "STREAM.DELETE.KV_vigil-gates")
    assert [each.wait() for each in nodes] == [EXIT_LOST] * 2
    await loading
    await forget_ids(cluster)

    recovered = vigil.run("recover", "--accept-loss", "--yes", "--by", "ann")
    assert recovered.returncode == 0, recovered.stderr
    made_anew = f"breaker 1, cooldown {DISKS}, overlap 1, published 3"
    assert f"made anew in the gates: {made_anew}" in recovered.stdout
    nodes = [await cluster.start(each, app=APP) for each in ("n3", "n4")]
    await load.send(DISKS)
    await cluster.wait_rows(done, load.sent, most_s=120)

    rows = await cluster.query("select expectation_id, count(*) from episodes group by 1")
    opened = {row["expectation_id"]: row["count"] for row in rows}
    assert opened == {"orders": load.sent, "disks": DISKS, "hosts": 1, "calls": THRESHOLD}
    assert [each.stop() for each in nodes] == [0, 0]
    told, due = await told_and_due(cluster)
    assert {id_: count for id_, count in told.items() if count > 1} == {}
    assert set(told) == due
    assert vigil.run("doctor").returncode == 0
