"""How a node keeps its leases, and how it notices that it has lost one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from engine.actions import observe, tool_call
from engine.runtime.keeper import Keeper
from streams.errors import Unavailable
from streams.events import EndStatus, EpisodeStarted
from streams.memory.leases import MemoryLeases
from tests.engine.runtime.stage import (
    CLOCK,
    LEASE_TTL_S,
    WAIT_S,
    Counter,
    Scripted,
    app_of,
    eventually,
    lived,
    open_episode,
    running,
)

KEY = "episode.worker.e1"


class Shaky(MemoryLeases):
    """Leases of a server that can be away."""

    away = False
    renewals = 0

    async def renew(self, lease):
        self.renewals += 1
        if self.away:
            raise Unavailable("renew", detail="away")
        return await super().renew(lease)


@pytest.fixture
def leases():
    return Shaky(CLOCK, ttl_s=LEASE_TTL_S)


@pytest.fixture
async def keeper(leases):
    keeper = Keeper(leases, holder="n1", clock=CLOCK)
    beating = asyncio.create_task(keeper.beat())
    yield keeper
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)


@asynccontextmanager
async def watching(leases):
    async with leases.watch() as watch:

        async def changed(state):
            async with asyncio.timeout(WAIT_S):
                while True:
                    for change in await watch.receive(most=1, wait_s=WAIT_S):
                        if change.state == state:
                            return change

        yield changed


async def test_a_lease_is_renewed_at_every_third_of_its_life(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    first_s = held.lease.trusted_until_s
    await eventually(lambda: leases.renewals == 3)
    last_s = held.lease.trusted_until_s

    assert last_s - first_s == pytest.approx(LEASE_TTL_S, rel=0.4)
    assert await leases.acquire(KEY, holder="n2") is None


async def test_a_key_that_someone_has_is_not_acquired(keeper, leases):
    await leases.acquire(KEY, holder="n2")
    assert await keeper.acquire(KEY, on_lost=lambda: None) is None


async def test_a_released_lease_is_free_at_once_and_leaves_no_marker(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    await keeper.release(held)
    assert await leases.acquire(KEY, holder="n2")


async def test_a_forgotten_lease_lapses(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    keeper.forget(held)
    async with watching(leases) as changed:
        await changed("expired")
    assert leases.renewals == 0


async def test_a_lease_that_was_taken_over_is_lost_at_the_next_beat(keeper, leases):
    lost = asyncio.Event()
    held = await keeper.acquire(KEY, on_lost=lost.set)
    await leases.release(held.lease)
    await leases.acquire(KEY, holder="n2")
    await asyncio.wait_for(lost.wait(), WAIT_S)
    assert held.lost


async def test_a_server_that_is_away_for_a_moment_costs_no_lease(keeper, leases):
    lost = asyncio.Event()
    held = await keeper.acquire(KEY, on_lost=lost.set)
    leases.away = True
    await eventually(lambda: leases.renewals == 1)
    leases.away = False
    await eventually(lambda: leases.renewals == 4)
    assert not lost.is_set()
    assert not held.lost


async def test_a_lease_that_cannot_be_renewed_is_lost_before_it_lapses(keeper, leases):
    lost = asyncio.Event()
    held = await keeper.acquire(KEY, on_lost=lost.set)
    leases.away = True
    await asyncio.wait_for(lost.wait(), WAIT_S)
    assert held.lost
    assert CLOCK.monotonic_s() <= held.lease.trusted_until_s + LEASE_TTL_S / 10


async def test_losing_a_lease_stops_the_episode_at_once_and_another_claim_finishes_it(ports):
    """I2."""
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("slow", "wait"), observe("end")), tools={"slow": tool})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        (stored,) = ports.leases._bucket.values()
        key = stored.change.key
        ports.leases._lapse(key, late_s=0, ends_s=CLOCK.monotonic_s() + 60)
        await eventually(lambda: len(tool.calls) == 2)
        tool.gate.set()
        life = await lived(ports, id_)

    assert [one.attempt for one in life.of(EpisodeStarted)] == [1, 2]
    assert life.end.status is EndStatus.DONE
