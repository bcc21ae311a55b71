"""Two nodes ask models until the money of the day has ended, and are killed again and again.

`tests/engine/spending/test_every_crash.py` plays a death at many moments, and the contracts a race
of nodes for the last of the money, on a server, too.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import pytest

from engine.runtime.store import Turns
from engine.spending.store import SpendingStore
from engine.spending.window import Spent, Window, window_at
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.subjects import Stack
from tests.acceptance.cluster import POLL_S, Cluster
from tests.acceptance.spending import DAY_USD

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.spending:app"
QUESTIONS: Final = 60
"""More than there is money for: each costs 0.04."""

KILLS: Final = 2
ENDED: Final = "select 1 from episodes where finished_at is not null"


class Watch:
    """Looks at the windows of the actor and the stack all the time."""

    def __init__(self, store: SpendingStore) -> None:
        self.store, self.most = store, Decimal(0)
        now = datetime.now(UTC)
        self.day: Window = window_at("worker", "day", now)
        self.month: Window = window_at("", "month", now)

    async def look(self) -> Spent:
        spent = await self.store.spent(self.day)
        self.most = max(self.most, spent.total)
        return spent

    async def keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.01)


async def kill_in_turn(cluster: Cluster, watch: Watch) -> None:
    """Kill one node and then the other, each time once something has been spent since."""
    nodes = {name: await cluster.start(name, app=APP) for name in ("n1", "n2")}
    await cluster.publish("question.asked", {f"q{n}": {"n": n} for n in range(QUESTIONS)})
    for number in range(KILLS):
        before, name = await watch.look(), f"n{number % 2 + 1}"
        while await watch.look() == before:
            if await has_ended(cluster):
                break
            await asyncio.sleep(POLL_S)
        nodes[name].kill()
        nodes[name] = await cluster.start(name, app=APP)
    await cluster.wait_rows(ENDED, QUESTIONS, most_s=90)


async def has_ended(cluster: Cluster) -> bool:
    rows = await cluster.query("select count(*) from episodes where finished_at is not null")
    return bool(rows[0][0] == QUESTIONS)


@pytest.mark.timeout(300)
async def test_no_limit_is_passed_by_nodes_that_are_killed_and_the_tables_say_what_it_cost(
    cluster: Cluster,
):
    async with connect(cluster.nats_url, stack=Stack("vigil")) as ports:
        watch = Watch(SpendingStore(ports.gates, SystemClock(), Turns()))
        watching = asyncio.create_task(watch.keep_looking())
        try:
            await kill_in_turn(cluster, watch)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        day, month = await watch.look(), await watch.store.spent(watch.month)
    ends = {row[0] for row in await cluster.query("select distinct error_class from episodes")}
    assert ends == {None, "budget_exceeded"}
    requests = "select cost_usd from episode_steps where cost_usd is not null"
    recorded = sum(row[0] for row in await cluster.query(requests))
    for sums in ("select sum(cost_usd) from episodes", "select cost_usd from costs_by_actor"):
        assert [row[0] for row in await cluster.query(sums)] == [recorded]
    assert Decimal("0.10") < recorded == day.used == day.total <= watch.most <= Decimal(DAY_USD)
    assert month.used >= recorded
