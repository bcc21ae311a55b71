"""Reading streams that are not ours: those that drop messages, and those that go away."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import Incompatible, NoSuchStream
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports import source
from streams.jetstream.ports.consumer import DurableConsumer
from streams.layout import Stream
from streams.model.foreign_streams import ForeignStream
from tests.contracts.samples import deliveries_of, opened
from tests.streams.jetstream.wire import eventually


@pytest.fixture
async def ports(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        yield ports


@pytest.fixture
def world(ports):
    return ports.domain_events


@pytest.fixture
async def link(nats):
    async with Link(nats.url, LinkSettings()) as link:
        yield link


@pytest.fixture
def name(stack):
    return f"JOBS-{stack.name}"


@pytest.fixture
def make(link, name):
    """Makes the stream, and publishes so many messages to it."""

    async def make_and_fill(count, **config):
        subjects = [f"{name}.>"]
        await api.call(
            link, f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **config}
        )
        for number in range(count):
            await link.ask(f"{name}.{number}", b"{}")

    return make_and_fill


def seqs(found):
    return [each.seq for each in found]


async def config_of(link, name):
    return (await api.call(link, f"STREAM.INFO.{name}"))["config"]


@pytest.mark.parametrize("start", ["new", "all", 2])
async def test_all_that_a_work_queue_holds_is_work(world, make, name, start):
    await make(3, retention="workqueue")
    async with opened(
        world.open_feed("monitor", ForeignStream(stream=name, start=start))
    ) as reading:
        assert seqs(await deliveries_of(reading, 3)) == [1, 2, 3]


async def test_a_work_queue_whose_consumer_was_deleted_is_read_on(world, stack, link, make, name):
    await make(2, retention="workqueue")
    feed = ForeignStream(stream=name)
    async with opened(world.open_feed("monitor", feed)) as reading:
        await deliveries_of(reading, 1)
        receiving = asyncio.create_task(deliveries_of(reading, 2))
        durable = stack.feed_durable("monitor", feed.subject)

        async def is_pulled():
            return (await api.call(link, f"CONSUMER.INFO.{name}.{durable}"))["num_waiting"] == 1

        await eventually(is_pulled)
        await link.ask(f"$JS.API.CONSUMER.DELETE.{name}.{durable}")
        assert sorted(seqs(await receiving)) == [1, 2]


async def test_a_work_queue_that_another_reads_is_refused_and_says_why(world, make, name):
    await make(0, retention="workqueue")
    async with opened(world.open_feed("monitor", ForeignStream(stream=name, subject=f"{name}.a"))):
        with pytest.raises(Incompatible, match="consumer"):
            await world.open_feed("other", ForeignStream(stream=name))


async def test_reading_a_stream_leaves_it_as_it_is(world, link, make, name):
    await make(1)
    before = await config_of(link, name)
    feed = ForeignStream(stream=name, start="all")
    async with opened(world.open_feed("monitor", feed)) as reading:
        await deliveries_of(reading, 1)
    assert await config_of(link, name) == before


async def test_what_came_from_a_stream_that_was_deleted_is_not_acknowledged_in_the_new_one(
    world, link, make, name
):
    """Its messages have the same sequences."""
    feed = ForeignStream(stream=name, start="all")
    await make(1)
    async with opened(world.open_feed("monitor", feed)) as reading:
        (before,) = await deliveries_of(reading, 1)
        await api.call(link, f"STREAM.DELETE.{name}")
        await make(1)
        with pytest.raises(NoSuchStream):
            await deliveries_of(reading, 1)
        async with opened(world.open_feed("monitor", feed)) as anew:
            await deliveries_of(anew, 1)
            await before.ack()
            assert await world.backlog("monitor", [feed]) == 1


async def test_who_asked_for_nothing_while_a_stream_was_made_anew_is_told(
    world, link, make, name, monkeypatch
):
    """Another node has made the queue anew by then, so the server has nothing to complain about."""
    monkeypatch.setattr(source, "UNWATCHED_S", 0.0)
    feed = ForeignStream(stream=name, start="all")
    await make(1)
    async with opened(world.open_feed("monitor", feed)) as busy:
        await deliveries_of(busy, 1)
        await api.call(link, f"STREAM.DELETE.{name}")
        await make(5)
        async with opened(world.open_feed("monitor", feed)) as other:
            await deliveries_of(other, 2)
            with pytest.raises(NoSuchStream):
                await deliveries_of(busy, 1)


async def test_events_are_read_from_the_beginning_of_a_stream_of_ours_that_was_made_anew(
    nats, world, link, stack
):
    """It ends before the sequence at which its queue was."""
    async with opened(world.open("monitor", ["order.placed"])) as reading:
        for number in range(3):
            await world.publish("order.placed", {"number": number}, id=f"before-{number}")
        for each in await deliveries_of(reading, 3):
            await each.ack()
        await api.call(link, f"STREAM.DELETE.{stack.stream(Stream.EVENTS)}")
        async with connect(nats.url, stack=stack) as anew:
            await anew.domain_events.publish("order.placed", {"number": 3}, id="after")
            (delivery,) = await deliveries_of(reading, 1)
    assert delivery.content.id == "after"


async def test_a_queue_that_was_made_for_the_stream_before_is_not_kept(
    world, link, make, name, monkeypatch
):
    """The stream is made anew in the moment in which the queue is made."""
    feed, ensure = ForeignStream(stream=name), DurableConsumer.ensure

    async def ensured_in_the_new_one(self, link, *, resume_seq=0):
        await api.call(link, f"STREAM.DELETE.{name}")
        await make(3)
        return await ensure(self, link, resume_seq=resume_seq)

    await make(5)
    with monkeypatch.context() as patch:
        patch.setattr(DurableConsumer, "ensure", ensured_in_the_new_one)
        with pytest.raises(NoSuchStream):
            await world.open_feed("monitor", feed)
    await link.ask(f"{name}.more", b"{}")
    assert await world.backlog("monitor", [feed]) == 0
