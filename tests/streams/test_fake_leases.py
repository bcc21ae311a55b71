"""What users can make leases do in their tests. The rest is the contract of `Leases`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.clock import SystemClock
from streams.errors import LeaseLost
from streams.memory.fake_leases import FakeLeases

KEY = "episode.monitor.e1"
YEAR_S = 365 * 24 * 3600.0


class HandClock(SystemClock):
    """A clock that somebody sets by hand."""

    elapsed_s = 0.0

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.elapsed_s)

    def monotonic_s(self):
        return self.elapsed_s


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def leases(clock):
    return FakeLeases(clock)


async def test_a_busy_key_stays_busy_however_long_nobody_renews_it(leases, clock):
    leases.set_busy(KEY)
    clock.elapsed_s = YEAR_S
    assert await leases.acquire(KEY, holder="n1") is None


async def test_whoever_held_a_key_that_is_set_busy_has_lost_it(leases):
    lease = await leases.acquire(KEY, holder="n1")
    leases.set_busy(KEY)
    assert not await leases.owns(lease)
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_a_busy_key_that_is_made_to_lapse_is_there_to_be_stolen(leases):
    leases.set_busy(KEY)
    leases.lapse(KEY)
    (marker,) = await leases.reclaim_expired()
    assert (marker.key, marker.state) == (KEY, "expired")
    assert (await leases.acquire(KEY, holder="n1")).stolen


async def test_a_lease_can_be_made_to_lapse_before_its_time(leases):
    lease = await leases.acquire(KEY, holder="n1")
    async with leases.watch(after=lease.revision) as watch:
        leases.lapse(KEY)
        (change,) = await watch.receive(most=10, wait_s=0)
    assert change.state == "expired"
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_what_nobody_holds_cannot_lapse(leases):
    with pytest.raises(KeyError):
        leases.lapse(KEY)
    await leases.acquire(KEY, holder="n1")
    leases.lapse(KEY)
    with pytest.raises(KeyError):
        leases.lapse(KEY)
