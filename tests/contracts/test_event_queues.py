"""What every queue of events promises about order, to a node that pulls it alone."""

from __future__ import annotations

import pytest

from streams.errors import Unavailable
from tests.contracts.samples import SILENCE_S, deliveries_of, opened, wait_backlog


@pytest.fixture
def world(ports):
    return ports.domain_events


def ids(found):
    return [each.content.id for each in found]


async def published(world, *names):
    """Publish an event called each of `names`, with its place as its id."""
    return [await world.publish(name, {}, id=str(place)) for place, name in enumerate(names, 1)]


async def test_events_come_in_their_order_and_are_counted(world):
    async with opened(world.open("monitor", ["a", "b"])) as source:
        await published(world, "a", "b", "c", "a")
        found = await deliveries_of(source, 3)
    assert ids(found) == ["1", "2", "4"]
    assert [each.nth for each in found] == [1, 2, 3]


async def test_a_delivery_to_another_node_is_missing_in_the_count(world):
    async with opened(world.open("monitor", ["a"])) as source:
        async with opened(world.open("monitor", ["a"])) as other:
            await published(world, "a", "a", "a")
            (first,) = await deliveries_of(source, 1)
            await deliveries_of(other, 1)
        (third,) = await deliveries_of(source, 1)
        assert third.nth - first.nth == 2


async def test_what_is_handed_back_comes_again_in_its_order_before_what_is_new(world):
    async with (
        opened(world.open("monitor", ["a"])) as source,
        opened(world.open("monitor", ["a"])) as other,
    ):
        await published(world, "a", "a", "a", "a", "a")
        found = await deliveries_of(source, 4)
        await found[1].ack()
        assert await source.hand_back()
        again = await deliveries_of(other, 4)
        assert ids(again) == ["1", "3", "4", "5"]
        # The newest one may have been on its way to the first puller, too.
        assert [each.deliveries for each in again[:3]] == [2, 2, 2]


async def test_what_is_handed_back_by_who_lacks_some_comes_later(world):
    async with opened(world.open("monitor", ["a"])) as source:
        await published(world, "a")
        await deliveries_of(source, 1)
        assert not await source.hand_back(is_whole=False)
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []


async def test_a_queue_that_was_handed_back_is_received_on(world):
    async with opened(world.open("monitor", ["a"])) as source:
        assert await source.hand_back()
        await published(world, "a")
        await deliveries_of(source, 1)
        assert await source.hand_back()
        (again,) = await deliveries_of(source, 1)
        assert (ids([again]), again.deliveries) == (["1"], 2)


async def test_a_queue_begins_where_its_first_opener_says(world):
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


async def test_a_queue_says_how_far_it_is(world):
    async with (
        opened(world.open("monitor", ["a"])) as source,
        opened(world.open("monitor", ["a"])) as other,
    ):
        assert (await source.position()).delivered == 0
        seqs = await published(world, "a", "b", "a", "a")
        found = await deliveries_of(source, 2)
        position = await other.position()
        assert (position.delivered, position.unacknowledged) == (2, 2)
        assert found[-1].seq <= position.delivered_seq < seqs[-1]
        assert position.acknowledged_seq < seqs[0]
        await found[1].ack()
        await wait_backlog(world, 2)
        assert (await source.position()).acknowledged_seq < seqs[0]
        await found[0].ack()
        await wait_backlog(world, 1)
        position = await source.position()
        assert (position.delivered, position.unacknowledged) == (2, 0)
        assert found[-1].seq <= position.acknowledged_seq < seqs[-1]


async def test_what_is_handed_back_is_unacknowledged_and_counted_when_it_comes_again(world):
    async with opened(world.open("monitor", ["a"])) as source:
        await published(world, "a")
        assert await source.hand_back() is True
        (found,) = await deliveries_of(source, 1)
        await found.nak()
        await deliveries_of(source, 1)
        position = await source.position()
        assert (position.delivered, position.unacknowledged) == (2, 1)


async def test_nothing_is_received_by_who_may_not_ask(world):
    def refuse():
        raise Unavailable("the queue", detail="another node pulls it")

    async with opened(world.open("monitor", ["a"])) as source:
        await published(world, "a")
        with pytest.raises(Unavailable, match="another node"):
            await source.receive(room=1, wait_s=1.0, check=refuse)
        assert (await source.position()).delivered == 0


async def test_stored_events_of_a_name_are_read_between_two_sequences(world):
    seqs = await published(world, "a", "b", "a", "a", "a")
    found = await world.stored("a", after=seqs[0], up_to=seqs[3])
    assert [(each.id, each.seq) for each in found] == [("3", seqs[2]), ("4", seqs[3])]
    assert await world.stored("a", after=seqs[4], up_to=seqs[4] + 10) == []


async def test_a_stored_event_is_the_same_as_a_delivered_one(world):
    async with opened(world.open("monitor", ["a"])) as source:
        (seq,) = await published(world, "a")
        (found,) = await deliveries_of(source, 1)
        assert list(await world.stored("a", after=seq - 1, up_to=seq)) == [found.content]
