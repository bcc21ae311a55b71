"""What every `Bucket` promises, be it the registry or the gates."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import RevisionConflict
from streams.ports.bucket import TTL_S_MAX, BucketEntry
from tests.contracts.samples import SILENCE_S, next_of

KEY = "mode.n1"
SHORT_S = 1
"""The shortest time to live that there is: lapses come quickly."""

LONG_S = 3600


async def lapse_of(watch, key):
    """Return the entry that says that `key` is gone, once it comes."""
    while True:
        (entry,) = await next_of(watch, 1)
        if entry.key == key and entry.value is None:
            return entry


@pytest.fixture
def bucket(bucket_name, ports):
    return getattr(ports, bucket_name)


async def test_what_is_put_is_there(bucket):
    revision = await bucket.put(KEY, b"full")
    assert await bucket.get(KEY) == BucketEntry(key=KEY, value=b"full", revision=revision)


async def test_an_empty_value_is_a_value(bucket):
    revision = await bucket.put(KEY, b"")
    assert await bucket.get(KEY) == BucketEntry(key=KEY, value=b"", revision=revision)


async def test_a_key_that_was_never_put_is_not_there(bucket):
    assert await bucket.get(KEY) is None


async def test_a_later_value_replaces_an_earlier_one(bucket):
    first = await bucket.put(KEY, b"full")
    second = await bucket.put(KEY, b"disabled")
    assert second > first
    assert await bucket.get(KEY) == BucketEntry(key=KEY, value=b"disabled", revision=second)


async def test_a_deleted_key_is_not_there(bucket):
    await bucket.put(KEY, b"full")
    await bucket.delete(KEY)
    assert await bucket.get(KEY) is None
    assert await bucket.entries() == {}


async def test_deleting_a_key_that_is_not_there_does_nothing(bucket):
    await bucket.delete(KEY)
    assert await bucket.get(KEY) is None


async def test_a_delete_at_the_revision_that_was_read_removes_the_key(bucket):
    await bucket.delete(KEY, after=await bucket.put(KEY, b"full"))
    assert await bucket.get(KEY) is None


async def test_a_delete_at_an_older_revision_is_refused_and_the_key_stands(bucket):
    first = await bucket.put(KEY, b"full")
    second = await bucket.put(KEY, b"disabled")
    with pytest.raises(RevisionConflict):
        await bucket.delete(KEY, after=first)
    assert await bucket.get(KEY) == BucketEntry(key=KEY, value=b"disabled", revision=second)


async def test_a_delete_at_a_revision_of_what_is_gone_does_nothing(bucket):
    first = await bucket.put(KEY, b"full")
    await bucket.delete(KEY)
    await bucket.delete(KEY, after=first)
    assert await bucket.get(KEY) is None


async def test_the_entries_are_every_key_that_stands(bucket):
    await bucket.put("gone", b"x")
    await bucket.delete("gone")
    first = await bucket.put("mode.n1", b"1")
    second = await bucket.put("actor.monitor", b"2")
    assert await bucket.entries() == {
        "mode.n1": BucketEntry(key="mode.n1", value=b"1", revision=first),
        "actor.monitor": BucketEntry(key="actor.monitor", value=b"2", revision=second),
    }


async def test_no_entries_stand_at_first(bucket):
    assert await bucket.entries() == {}


async def test_a_put_at_the_revision_that_was_read_succeeds(bucket):
    first = await bucket.put(KEY, b"1")
    await bucket.put(KEY, b"2", after=first)
    assert (await bucket.get(KEY)).value == b"2"


async def test_a_put_at_an_older_revision_is_refused_and_changes_nothing(bucket):
    first = await bucket.put(KEY, b"1")
    await bucket.put(KEY, b"2")
    with pytest.raises(RevisionConflict):
        await bucket.put(KEY, b"3", after=first)
    assert (await bucket.get(KEY)).value == b"2"


async def test_a_put_after_zero_creates(bucket):
    await bucket.put(KEY, b"1", after=0)
    assert (await bucket.get(KEY)).value == b"1"


async def test_a_put_after_zero_is_refused_if_the_key_stands(bucket):
    await bucket.put(KEY, b"1")
    with pytest.raises(RevisionConflict):
        await bucket.put(KEY, b"2", after=0)


async def test_a_put_after_zero_creates_a_deleted_key_again(bucket):
    first = await bucket.put(KEY, b"1")
    await bucket.delete(KEY)
    assert await bucket.put(KEY, b"2", after=0) > first
    assert (await bucket.get(KEY)).value == b"2"


async def test_a_put_at_the_revision_before_a_delete_is_refused(bucket):
    first = await bucket.put(KEY, b"1")
    await bucket.delete(KEY)
    with pytest.raises(RevisionConflict):
        await bucket.put(KEY, b"2", after=first)


async def test_of_many_puts_at_one_revision_exactly_one_wins(bucket):
    first = await bucket.put(KEY, b"0")
    rivals = [bucket.put(KEY, b"%d" % n, after=first) for n in range(10)]
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 9


async def test_a_watch_shows_what_stands_and_then_each_change(bucket):
    first = await bucket.put("a", b"1")
    second = await bucket.put("b", b"2")
    async with bucket.watch() as watch:
        assert await next_of(watch, 2) == [
            BucketEntry(key="a", value=b"1", revision=first),
            BucketEntry(key="b", value=b"2", revision=second),
        ]
        third = await bucket.put("a", b"3")
        assert await next_of(watch, 1) == [BucketEntry(key="a", value=b"3", revision=third)]


async def test_what_stands_is_shown_in_the_order_it_was_put(bucket):
    await bucket.put("a", b"1")
    await bucket.put("b", b"1")
    await bucket.put("a", b"2")
    async with bucket.watch() as watch:
        assert [entry.key for entry in await next_of(watch, 2)] == ["b", "a"]


async def test_a_watch_shows_a_delete_as_an_entry_without_a_value(bucket):
    first = await bucket.put(KEY, b"1")
    async with bucket.watch() as watch:
        await next_of(watch, 1)
        await bucket.delete(KEY)
        (gone,) = await next_of(watch, 1)
    assert (gone.key, gone.value) == (KEY, None)
    assert gone.revision > first


async def test_a_watch_of_some_keys_sees_no_others(bucket):
    await bucket.put("node.n1", b"1")
    await bucket.put("nodes", b"1")
    async with bucket.watch(under="node") as watch:
        assert [entry.key for entry in await next_of(watch, 1)] == ["node.n1"]
        await bucket.put("cooldown.n1", b"1")
        await bucket.put("node.n2", b"1")
        assert [entry.key for entry in await next_of(watch, 1)] == ["node.n2"]


async def test_a_watch_of_nothing_returns_nothing_after_its_wait(bucket):
    async with bucket.watch() as watch:
        assert list(await watch.receive(most=10, wait_s=SILENCE_S)) == []


async def test_a_waiting_watch_wakes_when_something_changes(bucket):
    async with bucket.watch() as watch:
        waiting = asyncio.create_task(next_of(watch, 1))
        revision = await bucket.put(KEY, b"1")
        assert await waiting == [BucketEntry(key=KEY, value=b"1", revision=revision)]


async def test_the_entries_under_a_word_are_those_that_begin_with_it_and_a_dot(bucket):
    for key in ("node.n1", "node.n2", "nodes.n3", "node", "cooldown.node.n4"):
        await bucket.put(key, b"")
    await bucket.put("node.gone", b"")
    await bucket.delete("node.gone")
    assert sorted(await bucket.entries(under="node")) == ["node.n1", "node.n2"]
    assert sorted(await bucket.entries(under="cooldown.node")) == ["cooldown.node.n4"]
    assert await bucket.entries(under="other") == {}


async def test_the_leader_lists_what_stands_and_nothing_that_is_gone(bucket):
    for number in range(50):
        await bucket.put(f"node.n{number}", b"%d" % number)
    await bucket.put("nodes.n1", b"")
    await bucket.delete("node.n7")
    entries = await bucket.entries(under="node", from_leader=True)
    assert entries == await bucket.entries(under="node")
    assert len(entries) == 49
    assert await bucket.entries(under="other", from_leader=True) == {}


async def test_a_key_with_a_time_to_live_stands_until_then_like_any_other(bucket):
    revision = await bucket.put(KEY, b"1", after=0, ttl_s=LONG_S)
    assert await bucket.get(KEY) == BucketEntry(key=KEY, value=b"1", revision=revision)
    with pytest.raises(RevisionConflict):
        await bucket.put(KEY, b"2", after=0, ttl_s=LONG_S)
    second = await bucket.put(KEY, b"2", after=revision, ttl_s=LONG_S)
    await bucket.delete(KEY)
    assert await bucket.get(KEY) is None
    assert await bucket.put(KEY, b"3", after=0) > second


async def test_a_key_goes_when_its_time_is_over_and_watchers_hear_of_it(bucket):
    async with bucket.watch() as watch:
        revision = await bucket.put(KEY, b"1", ttl_s=SHORT_S)
        await bucket.put("kept", b"1")
        assert await next_of(watch, 1) == [BucketEntry(key=KEY, value=b"1", revision=revision)]
        gone = await lapse_of(watch, KEY)
    assert gone.revision > revision
    assert await bucket.get(KEY) is None
    assert list(await bucket.entries()) == ["kept"]


async def test_a_put_in_between_gives_a_key_a_new_life(bucket):
    async with bucket.watch() as watch:
        for key in ("renewed", "for-ever"):
            await bucket.put(key, b"1", ttl_s=SHORT_S)
        renewed = await bucket.put("renewed", b"2", ttl_s=LONG_S)
        for_ever = await bucket.put("for-ever", b"2")
        await bucket.put("clock", b"", ttl_s=SHORT_S)
        await lapse_of(watch, "clock")  # So the first life of the others would be over, too.
    assert await bucket.entries() == {
        "renewed": BucketEntry(key="renewed", value=b"2", revision=renewed),
        "for-ever": BucketEntry(key="for-ever", value=b"2", revision=for_ever),
    }


async def test_a_key_that_lapsed_is_absent_to_whoever_names_a_revision(bucket):
    async with bucket.watch() as watch:
        first = await bucket.put(KEY, b"1", ttl_s=SHORT_S)
        gone = await lapse_of(watch, KEY)
        for stale in (first, gone.revision - 1):
            with pytest.raises(RevisionConflict):
                await bucket.put(KEY, b"2", after=stale)
        again = await bucket.put(KEY, b"2", after=0, ttl_s=LONG_S)
        assert again > gone.revision
        assert await next_of(watch, 1) == [BucketEntry(key=KEY, value=b"2", revision=again)]


async def test_of_many_who_take_a_key_that_lapsed_exactly_one_wins(bucket):
    async with bucket.watch() as watch:
        await bucket.put(KEY, b"0", ttl_s=SHORT_S)
        await lapse_of(watch, KEY)
    rivals = [bucket.put(KEY, b"%d" % n, after=0, ttl_s=LONG_S) for n in range(10)]
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    (won,) = [each for each in outcomes if isinstance(each, int)]
    assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 9
    assert (await bucket.get(KEY)).revision == won


async def test_a_watch_that_starts_after_a_lapse_shows_only_what_stands(bucket):
    kept = await bucket.put("kept", b"1")
    async with bucket.watch() as watch:
        await bucket.put(KEY, b"1", ttl_s=SHORT_S)
        await lapse_of(watch, KEY)
    async with bucket.watch() as later:
        assert await next_of(later, 1) == [BucketEntry(key="kept", value=b"1", revision=kept)]
        assert list(await later.receive(most=10, wait_s=SILENCE_S)) == []


@pytest.mark.parametrize("ttl_s", [-1, 0, TTL_S_MAX + 1])
async def test_a_time_to_live_that_no_server_keeps_is_refused(bucket, ttl_s):
    with pytest.raises(ValueError, match="cannot live for"):
        await bucket.put(KEY, b"1", ttl_s=ttl_s)
    assert await bucket.get(KEY) is None


async def test_the_longest_time_to_live_is_kept(bucket):
    await bucket.put(KEY, b"1", ttl_s=TTL_S_MAX)
    assert (await bucket.get(KEY)).value == b"1"
