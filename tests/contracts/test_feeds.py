"""What every `World` promises of streams that are not the stack's own."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from streams.errors import NoSuchStream
from streams.model.foreign_streams import ForeignStream
from streams.model.triggers import CloudEvent
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EVENT_BYTES_MAX, DomainEvent
from tests.contracts.samples import SILENCE_S, deliveries_of, opened

HISTORY = 500


@pytest.fixture
def world(ports):
    return ports.domain_events


@pytest.fixture
def received(world, orders):
    """What an actor makes of a message that the stream's owner published."""

    async def publish_and_receive(data, headers):
        async with opened(world.open_feed("monitor", orders.feed())) as source:
            await orders.publish("placed", data, headers)
            (delivery,) = await deliveries_of(source, 1)
        return delivery.content

    return publish_and_receive


def seqs(deliveries):
    return [delivery.seq for delivery in deliveries]


async def published(orders, count, *, what="placed"):
    return [await orders.publish(what) for _ in range(count)]


async def done(world, feed, count, *, actor="monitor"):
    """Open the feed, answer for the next `count` of its events, and say which they were."""
    async with opened(world.open_feed(actor, feed)) as source:
        deliveries = await deliveries_of(source, count)
        for delivery in deliveries:
            await delivery.ack()
    return seqs(deliveries)


async def test_a_message_of_another_stream_is_an_event(world, orders):
    headers = {"Nats-Msg-Id": "o-1", "Vigil-Hops": "2", "traceparent": "00-aa-bb-01"}
    async with opened(world.open_feed("monitor", orders.feed())) as source:
        seq = await orders.publish("placed.eu", b'{"total": 7}', headers)
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content == DomainEvent(
        id=f"{orders.name}/o-1",
        name=f"{orders.name}.placed.eu",
        payload={"total": 7},
        seq=seq,
        at=delivery.at,
        hops=2,
        stream=orders.name,
    )
    assert delivery.trace == "00-aa-bb-01"


async def test_a_cloud_event_of_another_stream_keeps_its_id_and_says_what_it_is(received, orders):
    content = await received(b"{}", {"ce-id": "c-1", "ce-type": "order.placed"})
    assert content.id == f"{orders.name}/c-1"
    assert content.cloud == CloudEvent(type="order.placed")


async def test_a_message_without_an_id_is_named_by_its_place(received, orders):
    content = await received(b"{}", {})
    assert content.id == f"{orders.name}:{content.seq}"


@pytest.mark.parametrize(
    ("data", "headers", "reason"),
    [
        (b"what?", {}, "unreadable"),
        (b"[1]", {}, "not_an_object"),
        (b'{"x":"' + b"x" * EVENT_BYTES_MAX + b'"}', {}, "too_large"),
        (b"{}", {"ce-id": "x" * 512}, "unreadable"),
        (b"{}", {"Vigil-Hops": "many"}, "unreadable"),
    ],
    ids=["no JSON", "no object", "too large", "too long with its stream", "no count"],
)
async def test_a_message_that_is_no_event_arrives_as_it_came(
    received, orders, data, headers, reason
):
    content = await received(data, headers)
    assert isinstance(content, Unreadable)
    assert (content.reason, content.data) == (reason, data)
    assert (content.stream, content.subject) == (orders.name, f"{orders.name}.placed")


async def test_a_feed_holds_what_is_on_its_subject(world, orders):
    wanted = orders.feed("*.eu.>", start="all")
    for what in ("placed.eu.1", "placed.eu", "placed.us.1", "sent.eu.1.a", "eu.1"):
        await orders.publish(what)
    async with opened(world.open_feed("monitor", wanted)) as source:
        assert seqs(await deliveries_of(source, 2)) == [1, 4]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_feed_of_a_stream_that_is_not_there_cannot_be_opened(world, stack):
    missing = ForeignStream(stream=f"{stack.name}-none")
    with pytest.raises(NoSuchStream, match=missing.stream):
        await world.open_feed("monitor", missing)


# Where it starts.


async def test_a_new_feed_starts_with_what_is_published_from_then_on(world, orders):
    await published(orders, 2)
    async with opened(world.open_feed("monitor", orders.feed())) as source:
        await orders.publish("placed")
        assert seqs(await deliveries_of(source, 1)) == [3]


async def test_all_that_a_stream_holds_comes_exactly_once(world, orders):
    await published(orders, HISTORY)
    feed = orders.feed(start="all")
    first = await done(world, feed, HISTORY // 2)
    second = await done(world, feed, HISTORY - len(first))
    assert first + second == list(range(1, HISTORY + 1))
    async with opened(world.open_feed("monitor", feed)) as source:
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_feed_starts_at_a_sequence(world, orders):
    await published(orders, 4)
    assert await done(world, orders.feed(start=3), 2) == [3, 4]


async def test_a_feed_starts_at_a_time(world, orders):
    await published(orders, 4)
    async with opened(world.open_feed("other", orders.feed(start="all"))) as source:
        times = [each.at for each in await deliveries_of(source, 4)]
    nearer_home = times[2].astimezone(timezone(timedelta(hours=2)))
    assert await done(world, orders.feed(start=nearer_home), 2) == [3, 4]


async def test_a_feed_starts_where_its_opener_says(world, orders):
    await published(orders, 3)
    async with opened(world.open_feed("monitor", orders.feed(), after=1)) as source:
        assert seqs(await deliveries_of(source, 2)) == [2, 3]


async def test_a_feed_that_was_begun_goes_on_whatever_its_start_says_now(world, orders):
    await published(orders, 4)
    assert await done(world, orders.feed(start="all"), 2) == [1, 2]
    assert await done(world, orders.feed(start=1), 1) == [3]
    async with opened(world.open_feed("monitor", orders.feed(), after=0)) as source:
        assert seqs(await deliveries_of(source, 1)) == [4]


async def test_nodes_of_an_actor_share_a_feed(world, orders):
    feed = orders.feed(start="all")
    await published(orders, 5)
    async with (
        opened(world.open_feed("monitor", feed)) as one,
        opened(world.open_feed("monitor", feed)) as other,
    ):
        taken = seqs(await deliveries_of(one, 2))
        left = seqs(await deliveries_of(other, 3))
    assert taken + left == [1, 2, 3, 4, 5]


async def test_neither_actors_nor_subjects_share_a_feed(world, orders):
    await published(orders, 2)
    for feed in (orders.feed(start="all"), orders.feed("placed", start="all")):
        assert await done(world, feed, 2, actor="one") == [1, 2]
        assert await done(world, feed, 2, actor="other") == [1, 2]


# In order.


async def test_a_feed_comes_in_the_order_of_its_stream(world, orders):
    headers = {"ce-id": "c-1", "traceparent": "00-aa-bb-01"}
    await orders.publish("placed", b'{"n": 1}', headers)
    await orders.publish("canceled")
    await orders.publish("placed", b"what?")
    async with opened(world.open_feed("monitor", orders.feed("placed", start="all"))) as source:
        first, second = await deliveries_of(source, 2)
    assert (first.seq, second.seq) == (1, 3)
    assert (first.content.id, first.trace) == (f"{orders.name}/c-1", "00-aa-bb-01")
    assert first.at == first.content.at
    assert isinstance(second.content, Unreadable)


async def test_the_backlog_of_a_feed_counts_what_waits_and_what_is_unanswered(world, orders):
    feed = orders.feed(start="all")
    await published(orders, 3)
    assert await world.backlog("monitor", [feed]) == 0  # Nobody has opened it yet.
    async with opened(world.open_feed("monitor", feed)) as source:
        await deliveries_of(source, 1)
        assert await world.backlog("monitor", [feed]) == 3
        assert await world.backlog("monitor") == 0


# A stream that is deleted, or made anew.


async def test_whoever_reads_a_stream_that_is_deleted_is_told(world, orders):
    await published(orders, 1)
    async with opened(world.open_feed("monitor", orders.feed(start="all"))) as source:
        await deliveries_of(source, 1)
        await orders.delete()
        with pytest.raises(NoSuchStream):
            await deliveries_of(source, 1)


async def test_whoever_reads_a_stream_that_is_made_anew_is_told(world, orders):
    async with opened(world.open_feed("monitor", orders.feed(start="all"))) as source:
        await orders.remake()
        await published(orders, 1)
        with pytest.raises(NoSuchStream):
            await deliveries_of(source, 1)


@pytest.mark.parametrize("start", ["new", "all"])
async def test_all_that_a_stream_has_that_was_made_anew_is_new(world, orders, start):
    feed = orders.feed(start=start)
    async with opened(world.open_feed("monitor", feed)):
        pass
    await orders.remake()
    await published(orders, 3)
    assert await done(world, feed, 3) == [1, 2, 3]


async def test_a_stream_that_was_made_anew_is_read_from_the_sequence_that_the_feed_says(
    world, orders
):
    feed = orders.feed(start=2)
    async with opened(world.open_feed("monitor", feed)):
        pass
    await orders.remake()
    await published(orders, 3)
    assert await done(world, feed, 2) == [2, 3]


async def test_a_stream_that_was_made_anew_is_read_on_where_it_was(world, orders):
    feed = orders.feed()
    async with opened(world.open_feed("monitor", feed)):
        pass
    await orders.remake()
    await published(orders, 2)
    assert await done(world, feed, 1) == [1]
    assert await done(world, feed, 1) == [2]


async def test_events_without_an_id_are_other_ones_in_a_stream_that_was_made_anew(world, orders):
    feed = orders.feed(start="all")
    ids = []
    for _ in range(3):
        await published(orders, 1)
        async with opened(world.open_feed("monitor", feed)) as source:
            (delivery,) = await deliveries_of(source, 1)
            ids.append(delivery.content.id)
        await orders.remake()
    assert ids[0] == f"{orders.name}:1"
    assert len(set(ids)) == len(ids)
