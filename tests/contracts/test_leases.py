"""What every `Leases` promises."""

from __future__ import annotations

import asyncio

import pytest

from streams.clock import SystemClock
from streams.errors import LeaseLost
from streams.leases import ClaimChange, Lease
from tests.contracts.conftest import LEASE_TTL_S
from tests.contracts.samples import SILENCE_S, WAIT_S, next_of

KEY = "episode.monitor.e1"
OTHER_KEY = "episode.monitor.e2"


@pytest.fixture
def leases(ports):
    return ports.leases


async def acquired(leases, key=KEY, *, holder="n1") -> Lease:
    lease = await leases.acquire(key, holder=holder)
    assert lease is not None, f"{key} is busy"
    return lease


async def lapsed(leases, lease: Lease) -> ClaimChange:
    """Return the change that says that `lease` lapsed."""
    async with leases.watch(after=lease.revision) as watch:
        (change,) = await next_of(watch, 1)
    assert (change.key, change.state) == (lease.key, "expired")
    return change


async def test_a_free_key_is_acquired(leases):
    lease = await leases.acquire(KEY, holder="n1")
    assert (lease.key, lease.holder) == (KEY, "n1")
    assert lease.revision > 0


async def test_leases_last_as_long_as_they_say(leases):
    assert leases.ttl_s == LEASE_TTL_S


async def test_a_held_key_is_busy_for_others(leases):
    await acquired(leases)
    assert await leases.acquire(KEY, holder="n2") is None


async def test_a_held_key_is_busy_for_its_own_holder(leases):
    await acquired(leases)
    assert await leases.acquire(KEY, holder="n1") is None


async def test_keys_do_not_stand_in_each_others_way(leases):
    await acquired(leases, KEY)
    await acquired(leases, OTHER_KEY, holder="n2")


async def test_of_many_who_ask_at_once_exactly_one_gets_the_key(leases):
    asking = [leases.acquire(KEY, holder=f"n{n}") for n in range(10)]
    assert sum(lease is not None for lease in await asyncio.gather(*asking)) == 1


async def test_a_holder_stops_trusting_its_lease_before_it_ends(leases):
    clock = SystemClock()
    lease = await acquired(leases)
    assert lease.trusted_until_s <= clock.monotonic_s() + LEASE_TTL_S
    lease.check(monotonic_s=clock.monotonic_s())
    await lapsed(leases, lease)
    with pytest.raises(LeaseLost):
        lease.check(monotonic_s=clock.monotonic_s())


async def test_a_renewal_gives_a_lease_a_full_life_again(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    assert (renewed.key, renewed.holder) == (lease.key, lease.holder)
    assert renewed.acquired_at == lease.acquired_at
    assert renewed.revision > lease.revision
    assert renewed.trusted_until_s > lease.trusted_until_s
    change = await lapsed(leases, renewed)
    assert (change.at - lease.acquired_at).total_seconds() >= LEASE_TTL_S


async def test_a_lease_that_is_renewed_in_time_outlives_its_first_life(leases):
    clock = SystemClock()
    lease = await acquired(leases)
    first_life_ends_s = lease.trusted_until_s
    async with leases.watch(after=lease.revision) as watch:
        while clock.monotonic_s() < first_life_ends_s + 0.5:
            lease = await leases.renew(lease)
            for change in await watch.receive(most=10, wait_s=LEASE_TTL_S / 4):
                assert change.state == "claimed"
    assert await leases.acquire(KEY, holder="n2") is None


async def test_an_older_revision_of_a_lease_cannot_be_renewed(leases):
    lease = await acquired(leases)
    await leases.renew(lease)
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_a_lease_that_nobody_renews_lapses_and_watchers_see_it(leases):
    async with leases.watch() as watch:
        lease = await acquired(leases)
        claimed, expired = await next_of(watch, 2)
    assert (claimed.state, claimed.revision) == ("claimed", lease.revision)
    assert (expired.key, expired.state, expired.claim) == (KEY, "expired", None)
    assert expired.revision > claimed.revision


async def test_a_lapsed_key_is_taken_over(leases):
    lease = await acquired(leases)
    marker = await lapsed(leases, lease)
    taken = await acquired(leases, holder="n2")
    assert taken.revision > marker.revision
    assert await leases.acquire(KEY, holder="n1") is None


async def test_a_lapsed_lease_cannot_be_renewed(leases):
    lease = await acquired(leases)
    await lapsed(leases, lease)
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_a_lease_that_was_taken_over_cannot_be_renewed(leases):
    lease = await acquired(leases)
    await lapsed(leases, lease)
    await acquired(leases, holder="n2")
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_a_released_key_can_be_acquired_at_once(leases):
    lease = await acquired(leases)
    await leases.release(lease)
    again = await acquired(leases, holder="n2")
    assert again.revision > lease.revision


async def test_a_released_lease_cannot_be_renewed(leases):
    lease = await acquired(leases)
    await leases.release(lease)
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_releasing_twice_does_nothing(leases):
    lease = await acquired(leases)
    await leases.release(lease)
    await leases.release(lease)
    await acquired(leases, holder="n2")


async def test_releasing_a_lost_lease_leaves_the_new_holder_alone(leases):
    lost = await acquired(leases)
    await lapsed(leases, lost)
    held = await acquired(leases, holder="n2")
    await leases.release(lost)
    assert await leases.acquire(KEY, holder="n3") is None
    await leases.renew(held)


async def test_releasing_an_older_revision_leaves_the_renewed_lease_alone(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    await leases.release(lease)
    await leases.renew(renewed)


async def test_a_watch_shows_what_stands_and_then_what_comes(leases):
    first = await acquired(leases, KEY)
    second = await acquired(leases, OTHER_KEY, holder="n2")
    async with leases.watch() as watch:
        standing = await next_of(watch, 2)
        assert [(c.key, c.revision) for c in standing] == [
            (KEY, first.revision),
            (OTHER_KEY, second.revision),
        ]
        await leases.release(second)
        (change,) = await next_of(watch, 1)
        assert (change.key, change.state, change.claim) == (OTHER_KEY, "done", None)


async def test_a_claim_says_whose_it_is(leases):
    lease = await acquired(leases)
    async with leases.watch() as watch:
        (change,) = await next_of(watch, 1)
    assert change.claim is not None
    assert change.claim.owner_node == "n1"
    assert change.claim.claimed_at == lease.acquired_at
    life = change.claim.lease_until - change.claim.heartbeat_at
    assert life.total_seconds() == pytest.approx(LEASE_TTL_S)


async def test_a_renewal_is_seen_as_the_same_claim(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    async with leases.watch() as watch:
        (change,) = await next_of(watch, 1)
    assert (change.state, change.revision) == ("claimed", renewed.revision)
    assert change.claim.claimed_at == lease.acquired_at
    assert change.claim.heartbeat_at >= change.claim.claimed_at


async def test_a_watch_after_a_revision_leaves_out_what_was_before(leases):
    await acquired(leases, KEY)
    second = await acquired(leases, OTHER_KEY)
    async with leases.watch(after=second.revision - 1) as watch:
        (change,) = await next_of(watch, 1)
    assert change.key == OTHER_KEY


async def test_a_watch_returns_no_more_than_was_asked_for(leases):
    await acquired(leases, KEY)
    await acquired(leases, OTHER_KEY)
    async with leases.watch() as watch:
        assert [c.key for c in await watch.receive(most=1, wait_s=WAIT_S)] == [KEY]
        assert [c.key for c in await watch.receive(most=1, wait_s=WAIT_S)] == [OTHER_KEY]


async def test_a_watch_of_nothing_returns_nothing_after_its_wait(leases):
    async with leases.watch() as watch:
        assert list(await watch.receive(most=10, wait_s=SILENCE_S)) == []


async def test_a_lapse_is_seen_by_watchers_who_come_later(leases):
    lease = await acquired(leases)
    marker = await lapsed(leases, lease)
    for after in (0, lease.revision):
        async with leases.watch(after=after) as watch:
            (change,) = await next_of(watch, 1)
        assert change == marker


async def test_several_leases_lapse_each_with_its_own_change(leases):
    async with leases.watch() as watch:
        await acquired(leases, KEY)
        await acquired(leases, OTHER_KEY)
        changes = await next_of(watch, 4)
    expired = [change.key for change in changes if change.state == "expired"]
    assert sorted(expired) == [KEY, OTHER_KEY]
