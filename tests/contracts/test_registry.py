"""What every `Registry` promises."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import RegistryConflict
from streams.registry import Entry
from tests.contracts.samples import SILENCE_S, next_of

KEY = "mode.n1"


@pytest.fixture
def registry(ports):
    return ports.registry


async def test_what_is_put_is_there(registry):
    revision = await registry.put(KEY, b"full")
    assert await registry.get(KEY) == Entry(key=KEY, value=b"full", revision=revision)


async def test_an_empty_value_is_a_value(registry):
    revision = await registry.put(KEY, b"")
    assert await registry.get(KEY) == Entry(key=KEY, value=b"", revision=revision)


async def test_a_key_that_was_never_put_is_not_there(registry):
    assert await registry.get(KEY) is None


async def test_a_later_value_replaces_an_earlier_one(registry):
    first = await registry.put(KEY, b"full")
    second = await registry.put(KEY, b"disabled")
    assert second > first
    assert await registry.get(KEY) == Entry(key=KEY, value=b"disabled", revision=second)


async def test_a_deleted_key_is_not_there(registry):
    await registry.put(KEY, b"full")
    await registry.delete(KEY)
    assert await registry.get(KEY) is None
    assert await registry.entries() == {}


async def test_deleting_a_key_that_is_not_there_does_nothing(registry):
    await registry.delete(KEY)
    assert await registry.get(KEY) is None


async def test_the_entries_are_every_key_that_stands(registry):
    await registry.put("gone", b"x")
    await registry.delete("gone")
    first = await registry.put("mode.n1", b"1")
    second = await registry.put("actor.monitor", b"2")
    assert await registry.entries() == {
        "mode.n1": Entry(key="mode.n1", value=b"1", revision=first),
        "actor.monitor": Entry(key="actor.monitor", value=b"2", revision=second),
    }


async def test_no_entries_stand_at_first(registry):
    assert await registry.entries() == {}


async def test_a_put_at_the_revision_that_was_read_succeeds(registry):
    first = await registry.put(KEY, b"1")
    await registry.put(KEY, b"2", after=first)
    assert (await registry.get(KEY)).value == b"2"


async def test_a_put_at_an_older_revision_is_refused_and_changes_nothing(registry):
    first = await registry.put(KEY, b"1")
    await registry.put(KEY, b"2")
    with pytest.raises(RegistryConflict):
        await registry.put(KEY, b"3", after=first)
    assert (await registry.get(KEY)).value == b"2"


async def test_a_put_after_zero_creates(registry):
    await registry.put(KEY, b"1", after=0)
    assert (await registry.get(KEY)).value == b"1"


async def test_a_put_after_zero_is_refused_if_the_key_stands(registry):
    await registry.put(KEY, b"1")
    with pytest.raises(RegistryConflict):
        await registry.put(KEY, b"2", after=0)


async def test_a_put_after_zero_creates_a_deleted_key_again(registry):
    first = await registry.put(KEY, b"1")
    await registry.delete(KEY)
    assert await registry.put(KEY, b"2", after=0) > first
    assert (await registry.get(KEY)).value == b"2"


async def test_a_put_at_the_revision_before_a_delete_is_refused(registry):
    first = await registry.put(KEY, b"1")
    await registry.delete(KEY)
    with pytest.raises(RegistryConflict):
        await registry.put(KEY, b"2", after=first)


async def test_of_many_puts_at_one_revision_exactly_one_wins(registry):
    first = await registry.put(KEY, b"0")
    rivals = [registry.put(KEY, b"%d" % n, after=first) for n in range(10)]
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, RegistryConflict) for outcome in outcomes) == 9


async def test_a_watch_shows_what_stands_and_then_each_change(registry):
    first = await registry.put("a", b"1")
    second = await registry.put("b", b"2")
    async with registry.watch() as watch:
        assert await next_of(watch, 2) == [
            Entry(key="a", value=b"1", revision=first),
            Entry(key="b", value=b"2", revision=second),
        ]
        third = await registry.put("a", b"3")
        assert await next_of(watch, 1) == [Entry(key="a", value=b"3", revision=third)]


async def test_what_stands_is_shown_in_the_order_it_was_put(registry):
    await registry.put("a", b"1")
    await registry.put("b", b"1")
    await registry.put("a", b"2")
    async with registry.watch() as watch:
        assert [entry.key for entry in await next_of(watch, 2)] == ["b", "a"]


async def test_a_watch_shows_a_delete_as_an_entry_without_a_value(registry):
    first = await registry.put(KEY, b"1")
    async with registry.watch() as watch:
        await next_of(watch, 1)
        await registry.delete(KEY)
        (gone,) = await next_of(watch, 1)
    assert (gone.key, gone.value) == (KEY, None)
    assert gone.revision > first


async def test_a_watch_of_nothing_returns_nothing_after_its_wait(registry):
    async with registry.watch() as watch:
        assert list(await watch.receive(most=10, wait_s=SILENCE_S)) == []


async def test_a_waiting_watch_wakes_when_something_changes(registry):
    async with registry.watch() as watch:
        waiting = asyncio.create_task(next_of(watch, 1))
        revision = await registry.put(KEY, b"1")
        assert await waiting == [Entry(key=KEY, value=b"1", revision=revision)]
