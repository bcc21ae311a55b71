"""What every `EventFollower` of a stack's own events promises, and how gates hand over to it."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import BadName, Unavailable
from streams.ports.delivery import Unreadable
from tests.contracts.samples import SILENCE_S, deliveries_of, next_of, opened, wait_backlog


@pytest.fixture
def world(ports):
    return ports.domain_events


def ids(found):
    return [each.content.id for each in found]


async def published(world, *names):
    """Publish an event called each of `names`, with its place as its id."""
    return [await world.publish(name, {}, id=str(place)) for place, name in enumerate(names, 1)]


async def test_events_are_followed_in_order_and_only_those_named(world):
    await published(world, "a", "b", "a.b", "c", "a")
    async with world.follow(["a", "c"], after=0) as follower:
        assert ids(await next_of(follower, 3)) == ["1", "4", "5"]
        await world.publish("b", {}, id="6")
        await world.publish("c", {}, id="7")
        assert ids(await next_of(follower, 1)) == ["7"]


async def test_an_event_is_followed_as_it_was_published(world):
    seq = await world.publish("a", {"n": 1}, id="ev-1", hops=3, trace="00-aa-bb-01")
    async with world.follow(["a"], after=0) as follower:
        (found,) = await next_of(follower, 1)
    assert (found.content.id, found.content.payload, found.content.hops) == ("ev-1", {"n": 1}, 3)
    assert (found.seq, found.at, found.trace) == (seq, found.content.at, "00-aa-bb-01")


async def test_what_is_no_event_is_followed_as_it_came(world, stack, publish_raw):
    await publish_raw(stack.event("a"), b"what?", {})
    await world.publish("a", {}, id="2")
    async with world.follow(["a"], after=0) as follower:
        first, second = await next_of(follower, 2)
    assert isinstance(first.content, Unreadable)
    assert ids([second]) == ["2"]


async def test_a_follower_begins_past_its_position(world):
    await published(world, "a", "b", "a", "a")
    async with world.follow(["a"], after=2) as follower:
        assert ids(await next_of(follower, 2)) == ["3", "4"]


async def test_a_follower_returns_no_more_than_was_asked_for_and_says_what_is_left(world):
    await published(world, "a", "b", "a", "a")
    async with world.follow(["a"], after=0) as follower:
        assert ids(await follower.receive(most=1, wait_s=5.0)) == ["1"]
        assert follower.pending == 2
        assert ids(await next_of(follower, 2)) == ["3", "4"]
        assert follower.pending == 0


async def test_a_waiting_follower_wakes_when_an_event_comes(world):
    async with world.follow(["a"], after=0) as follower:
        waiting = asyncio.create_task(next_of(follower, 1))
        await published(world, "b", "a")
        assert ids(await waiting) == ["2"]


async def test_a_follower_of_nothing_hears_nothing(world):
    await published(world, "a")
    async with world.follow([], after=0) as follower:
        assert list(await follower.receive(most=10, wait_s=SILENCE_S)) == []
        assert follower.pending == 0


async def test_a_stream_that_ends_before_the_position_is_not_waited_for(world):
    await published(world, "a")
    async with world.follow(["a"], after=5) as follower:
        with pytest.raises(Unavailable, match="ends at 1"):
            await follower.receive(most=1, wait_s=5.0)


async def test_a_name_that_is_no_dotted_name_is_not_followed(world):
    with pytest.raises(BadName):
        world.follow(["a.*"], after=0)


async def test_an_actor_that_was_never_opened_is_followed_from_now_on(world):
    await published(world, "a", "b")
    assert await world.position("monitor") == 2


async def test_the_newest_event_is_the_newest_of_any_name(world):
    assert await world.newest() == 0
    await published(world, "a", "b", "c")
    async with opened(world.open("monitor", ["a"])):
        assert await world.newest() == 3


async def test_an_actor_that_was_opened_is_followed_from_what_is_not_answered_for(world):
    await published(world, "a")
    async with opened(world.open("monitor", ["a"])) as source:
        assert await world.position("monitor") == 1
        for number in range(2, 6):
            await world.publish("a", {}, id=str(number))
        first, second, third = await deliveries_of(source, 3)
        await third.ack()
        await first.ack()
        await wait_backlog(world, 2)
        assert await world.position("monitor") == 2
        await second.ack()
        await wait_backlog(world, 1)
        async with world.follow(["a"], after=await world.position("monitor")) as follower:
            assert ids(await next_of(follower, 1)) == ["5"]


async def test_an_actor_that_was_followed_is_opened_where_its_follower_stopped(world):
    await published(world, "a", "a", "b", "a")
    async with opened(world.open("monitor", ["a"], after=1)) as source:
        assert ids(await deliveries_of(source, 2)) == ["2", "4"]


async def test_an_actor_that_was_opened_before_goes_on_whatever_its_opener_says(world):
    await published(world, "a")
    async with opened(world.open("monitor", ["a"])):
        pass
    await world.publish("a", {}, id="2")
    async with opened(world.open("monitor", ["a"], after=0)) as source:
        assert ids(await deliveries_of(source, 1)) == ["2"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_an_actor_that_is_forgotten_begins_anew_and_no_other_does(world):
    for actor in ("monitor", "other"):
        async with opened(world.open(actor, ["a"])):
            pass
    await published(world, "a")
    await world.forget("monitor")
    await world.forget("monitor")
    assert await world.position("monitor") == 1
    async with opened(world.open("other", ["a"])) as source:
        assert ids(await deliveries_of(source, 1)) == ["1"]


async def test_the_backlog_counts_what_waits_and_what_is_unanswered(world):
    assert await world.backlog("monitor") == 0
    async with opened(world.open("monitor", ["a"])) as source:
        await published(world, "a", "b", "a", "a")
        assert await world.backlog("monitor") == 3
        first, second = await deliveries_of(source, 2)
        assert await world.backlog("monitor") == 3
        await first.ack()
        await second.nak(delay_s=60)
        await wait_backlog(world, 2)
        assert await world.backlog("other") == 0


async def test_events_past_a_position_are_counted_and_only_those_named(world):
    await published(world, "a", "b", "a.b", "c", "a")
    assert await world.count(["a", "c"], after=0) == 3
    assert await world.count(["a", "c"], after=1) == 2
    assert await world.count(["a"], after=5) == 0
    assert await world.count(["d"], after=0) == 0
    assert await world.count([], after=0) == 0
