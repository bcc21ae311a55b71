"""What every `Leases` promises: in memory, on a server, and the ones that users test with."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from streams.errors import LeaseLost
from streams.memory.fake_leases import FakeLeases
from streams.ports.leases import ERROR_CHARS_MAX, ClaimChange, Lease
from tests.contracts.conftest import LEASE_TTL_S, SERVED
from tests.contracts.samples import SILENCE_S, WAIT_S, next_of
from tests.contracts.time import ContractClock

KEY = "episode.monitor.e1"
OTHER_KEY = "episode.monitor.e2"

ADAPTERS = ("memory", "fake", *SERVED)


@pytest.fixture
def leases(adapter, ports):
    return FakeLeases(ContractClock(), ttl_s=LEASE_TTL_S) if adapter == "fake" else ports.leases


async def acquired(leases, key=KEY, *, holder="n1", attempt=1) -> Lease:
    lease = await leases.acquire(key, holder=holder, attempt=attempt)
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
    clock = ContractClock()
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
    clock = ContractClock()
    lease = await acquired(leases)
    first_life_ends_s = lease.trusted_until_s
    async with leases.watch(after=lease.revision) as watch:
        while clock.monotonic_s() < first_life_ends_s + 0.5:
            lease = await leases.renew(lease)
            (change,) = await next_of(watch, 1)
            assert (change.state, change.revision) == ("claimed", lease.revision)
            assert list(await watch.receive(most=10, wait_s=LEASE_TTL_S / 4)) == []
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


async def test_a_completed_key_can_be_acquired_at_once(leases):
    lease = await acquired(leases)
    await leases.complete(lease)
    again = await acquired(leases, holder="n2")
    assert again.revision > lease.revision


async def test_a_completed_lease_cannot_be_renewed(leases):
    lease = await acquired(leases)
    await leases.complete(lease)
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_completing_twice_does_nothing(leases):
    lease = await acquired(leases)
    await leases.complete(lease)
    await leases.complete(lease)
    await acquired(leases, holder="n2")


async def test_completing_a_lost_lease_leaves_the_new_holder_alone(leases):
    lost = await acquired(leases)
    await lapsed(leases, lost)
    held = await acquired(leases, holder="n2")
    await leases.complete(lost)
    assert await leases.acquire(KEY, holder="n3") is None
    await leases.renew(held)


async def test_completing_a_lapsed_lease_leaves_its_marker(leases):
    lost = await acquired(leases)
    marker = await lapsed(leases, lost)
    await leases.complete(lost)
    assert list(await leases.reclaim_expired()) == [marker]


async def test_failing_a_lost_lease_leaves_the_marker_and_the_new_holder_alone(leases):
    lost = await acquired(leases)
    marker = await lapsed(leases, lost)
    await leases.fail(lost, error="too late")
    assert list(await leases.reclaim_expired()) == [marker]
    held = await acquired(leases, holder="n2")
    await leases.fail(lost, error="too late")
    assert await leases.acquire(KEY, holder="n3") is None
    await leases.renew(held)


async def test_failing_an_older_revision_leaves_the_renewed_lease_alone(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    await leases.fail(lease, error="too late")
    await leases.renew(renewed)


async def test_failing_what_was_completed_does_nothing(leases):
    lease = await acquired(leases)
    async with leases.watch(after=lease.revision) as watch:
        await leases.complete(lease)
        await leases.fail(lease, error="too late")
        again = await acquired(leases, holder="n2")
        changes = await next_of(watch, 1)
        while changes[-1].revision < again.revision:
            changes += await next_of(watch, 1)
    assert "failed" not in {change.state for change in changes}


async def test_a_failed_key_can_be_acquired_at_once(leases):
    lease = await acquired(leases)
    await leases.fail(lease, error="broken")
    again = await acquired(leases, holder="n2")
    assert again.revision > lease.revision
    with pytest.raises(LeaseLost):
        await leases.renew(lease)


async def test_watchers_see_that_work_failed_and_why(leases):
    lease = await acquired(leases)
    async with leases.watch(after=lease.revision) as watch:
        await leases.fail(lease, error="broken")
        (change,) = await next_of(watch, 1)
    assert (change.key, change.state, change.error) == (KEY, "failed", "broken")
    assert change.claim is None


@pytest.mark.parametrize(
    "error",
    ["", " spaces at the ends ", "two\r\nlines", "Vigil-Outcome: done", '"quoted"', "é 😀 \0"],
    ids=repr,
)
async def test_any_error_text_arrives_as_it_was(leases, error):
    lease = await acquired(leases)
    async with leases.watch(after=lease.revision) as watch:
        await leases.fail(lease, error=error)
        (change,) = await next_of(watch, 1)
    assert (change.state, change.error) == ("failed", error)


async def test_an_error_text_is_cut_and_made_valid(leases):
    lease = await acquired(leases)
    async with leases.watch(after=lease.revision) as watch:
        await leases.fail(lease, error="\ud800" + "😀" * 2 * ERROR_CHARS_MAX)
        (change,) = await next_of(watch, 1)
    assert change.error == "?" + "😀" * (ERROR_CHARS_MAX - 1)


async def test_what_ended_otherwise_shows_no_error(leases):
    async with leases.watch() as watch:
        await acquired(leases)
        await leases.complete(await acquired(leases, OTHER_KEY))
        changes = await next_of(watch, 3)
    assert {change.error for change in changes} == {""}
    assert [change.state for change in changes if change.key == KEY] == ["claimed", "expired"]


async def test_a_lease_says_which_attempt_it_is_for(leases):
    lease = await acquired(leases, attempt=3)
    assert lease.attempt == 3
    assert (await leases.renew(lease)).attempt == 3


async def test_the_first_attempt_is_the_usual_one(leases):
    lease = await leases.acquire(KEY, holder="n1")
    assert lease.attempt == 1


async def test_a_lease_that_was_taken_over_from_a_lapse_is_stolen(leases):
    first = await acquired(leases)
    assert not first.stolen
    await lapsed(leases, first)
    taken = await acquired(leases, holder="n2", attempt=2)
    assert taken.stolen
    assert (await leases.renew(taken)).stolen


@pytest.mark.parametrize("ending", ["complete", "fail"])
async def test_a_lease_of_a_key_that_was_given_up_is_not_stolen(leases, ending):
    lease = await acquired(leases)
    await (leases.complete(lease) if ending == "complete" else leases.fail(lease, error="broken"))
    again = await acquired(leases, holder="n2")
    assert not again.stolen


async def test_the_fencing_token_grows_from_owner_to_owner(leases):
    first = await acquired(leases, attempt=1)
    renewed = await leases.renew(first)
    await lapsed(leases, renewed)
    second = await acquired(leases, holder="n2", attempt=2)
    tokens = [(lease.attempt, lease.revision) for lease in (first, renewed, second)]
    assert tokens == sorted(set(tokens))


async def test_the_holder_owns_its_lease(leases):
    assert await leases.owns(await acquired(leases))


async def test_a_renewed_lease_is_owned_at_its_newest_revision_only(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    assert await leases.owns(renewed)
    assert not await leases.owns(lease)


async def test_a_lapsed_lease_is_not_owned(leases):
    lease = await acquired(leases)
    marker = await lapsed(leases, lease)
    assert not await leases.owns(lease)
    assert not await leases.owns(msgspec.structs.replace(lease, revision=marker.revision))


async def test_a_lease_that_was_taken_over_is_the_new_holders_alone(leases):
    lost = await acquired(leases)
    await lapsed(leases, lost)
    held = await acquired(leases, holder="n2")
    assert not await leases.owns(lost)
    assert await leases.owns(held)


@pytest.mark.parametrize("ending", ["complete", "fail"])
async def test_a_lease_that_was_given_up_is_not_owned(leases, ending):
    lease = await acquired(leases)
    async with leases.watch(after=lease.revision) as watch:
        await (leases.complete(lease) if ending == "complete" else leases.fail(lease, error="oh"))
        (change,) = await next_of(watch, 1)
    assert not await leases.owns(lease)
    assert not await leases.owns(msgspec.structs.replace(lease, revision=change.revision))


async def test_of_nothing_nothing_is_to_be_reclaimed(leases):
    assert list(await leases.reclaim_expired()) == []


async def test_what_is_held_or_was_given_up_is_not_to_be_reclaimed(leases):
    await leases.complete(await acquired(leases, "episode.monitor.done"))
    await leases.fail(await acquired(leases, "episode.monitor.failed"), error="broken")
    await acquired(leases)
    assert list(await leases.reclaim_expired()) == []


async def test_lapses_are_to_be_reclaimed_oldest_first_until_taken_over(leases):
    markers = [await lapsed(leases, await acquired(leases, key)) for key in (OTHER_KEY, KEY)]
    assert list(await leases.reclaim_expired()) == markers
    assert list(await leases.reclaim_expired(limit=1)) == markers[:1]
    await acquired(leases, OTHER_KEY, holder="n2")
    assert list(await leases.reclaim_expired()) == markers[1:]


async def test_completing_an_older_revision_leaves_the_renewed_lease_alone(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    await leases.complete(lease)
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
        await leases.complete(second)
        (change,) = await next_of(watch, 1)
        assert (change.key, change.state, change.claim) == (OTHER_KEY, "done", None)


async def test_a_claim_says_whose_it_is(leases):
    lease = await acquired(leases, attempt=3)
    async with leases.watch() as watch:
        (change,) = await next_of(watch, 1)
    assert change.claim is not None
    assert change.claim.owner_node == "n1"
    assert change.claim.attempt == 3
    assert change.claim.claimed_at == lease.acquired_at
    life = change.claim.lease_until - change.claim.heartbeat_at
    assert life.total_seconds() == pytest.approx(LEASE_TTL_S)


async def test_a_renewal_is_seen_as_the_same_claim(leases):
    lease = await acquired(leases, attempt=3)
    renewed = await leases.renew(lease)
    async with leases.watch() as watch:
        (change,) = await next_of(watch, 1)
    assert (change.state, change.revision) == ("claimed", renewed.revision)
    assert change.claim.claimed_at == lease.acquired_at
    assert change.claim.heartbeat_at >= change.claim.claimed_at
    assert change.claim.attempt == 3


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


@pytest.mark.parametrize("turns", range(6))
async def test_a_key_is_free_once_its_acquire_was_cut_off(leases, turns):
    lease = await cut_off(leases.acquire(KEY, holder="n1"), turns)
    if lease is not None:
        await leases.complete(lease)
    assert (await acquired(leases, holder="n2")).stolen is False


@pytest.mark.parametrize("turns", range(6))
async def test_a_key_can_be_given_up_after_its_renewal_was_cut_off(leases, turns):
    lease = await acquired(leases)
    renewed = await cut_off(leases.renew(lease), turns)
    await leases.complete(renewed or lease)
    assert (await acquired(leases, holder="n2")).stolen is False


async def cut_off(work, turns) -> Lease | None:
    """Cancel `work` after so many turns of the event loop; return its result if it was faster."""
    working = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})
    return None if working.cancelled() else working.result()


async def test_claims_of_a_dead_holder_are_cut_short_and_then_lapse_as_any_do(leases):
    dead, others = await acquired(leases), await acquired(leases, OTHER_KEY, holder="n2")
    assert list(await leases.cut_short(holder="n1")) == [KEY]
    with pytest.raises(LeaseLost):
        await leases.renew(dead)
    await leases.renew(others)
    assert await leases.acquire(KEY, holder="n3") is None
    async with leases.watch() as watch:
        state = ""
        while state != "expired":
            (change,) = await next_of(watch, 1)
            state = change.state if change.key == KEY else state
    taken = await acquired(leases, holder="n3")
    assert taken.stolen


async def test_what_lapsed_or_was_given_up_is_not_cut_short(leases):
    await leases.complete(await acquired(leases))
    await lapsed(leases, await acquired(leases, OTHER_KEY))
    assert list(await leases.cut_short(holder="n1")) == []


async def test_what_stands_under_a_key_is_its_claim(leases):
    lease = await acquired(leases)
    standing = await leases.standing(KEY)
    assert (standing.state, standing.revision) == ("claimed", lease.revision)
    assert (standing.claim.owner_node, standing.claim.claimed_at) == ("n1", lease.acquired_at)
    renewed = await leases.renew(lease)
    standing = await leases.standing(KEY)
    assert (standing.revision, standing.claim.claimed_at) == (renewed.revision, lease.acquired_at)


async def test_a_lapse_stands_until_the_key_is_taken_over(leases):
    lease = await acquired(leases)
    await lapsed(leases, lease)
    standing = await leases.standing(KEY)
    assert (standing.state, standing.claim) == ("expired", None)
    await acquired(leases, holder="n2")
    assert (await leases.standing(KEY)).claim.owner_node == "n2"


async def test_nothing_stands_under_a_key_that_is_free(leases):
    assert await leases.standing(KEY) is None
    await leases.complete(await acquired(leases))
    assert await leases.standing(KEY) is None


async def test_a_claim_is_ended_for_good_at_the_revision_that_is_over(leases):
    """For who has seen it stand for a whole life, and need not wait for the server to look."""
    lease = await acquired(leases)
    async with leases.watch(after=lease.revision) as watch:
        await leases.mark_lapsed(KEY, lease.revision)
        (marker,) = await next_of(watch, 1)
    assert (marker.key, marker.state, marker.claim) == (KEY, "expired", None)
    assert list(await leases.reclaim_expired()) == [marker]
    with pytest.raises(LeaseLost):
        await leases.renew(lease)
    assert not await leases.owns(lease)
    taken = await acquired(leases, holder="n2")
    assert taken.lapse_revision == marker.revision


async def test_a_claim_that_was_renewed_meanwhile_is_not_ended(leases):
    lease = await acquired(leases)
    renewed = await leases.renew(lease)
    await leases.mark_lapsed(KEY, lease.revision)
    assert await leases.owns(renewed)


@pytest.mark.parametrize("ending", ["complete", "fail"])
async def test_a_claim_that_was_given_up_does_not_lapse_any_more(leases, ending):
    lease = await acquired(leases)
    await (leases.complete(lease) if ending == "complete" else leases.fail(lease, error="oh"))
    await leases.mark_lapsed(KEY, lease.revision)
    assert list(await leases.reclaim_expired()) == []


async def test_a_claim_that_lapsed_is_not_ended_twice(leases):
    lease = await acquired(leases)
    marker = await lapsed(leases, lease)
    await leases.mark_lapsed(KEY, lease.revision)
    assert list(await leases.reclaim_expired()) == [marker]
