"""Reading streams that are not ours: those that drop messages, and those that go away."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import Incompatible
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.model.foreign_streams import ForeignStream
from tests.contracts.samples import deliveries_of, opened


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
    ) as source:
        assert seqs(await deliveries_of(source, 3)) == [1, 2, 3]


async def test_a_work_queue_whose_consumer_was_deleted_is_read_on(world, stack, link, make, name):
    await make(2, retention="workqueue")
    feed = ForeignStream(stream=name)
    async with opened(world.open_feed("monitor", feed)) as source:
        await deliveries_of(source, 1)
        receiving = asyncio.create_task(deliveries_of(source, 2))
        durable = stack.feed_durable("monitor", feed.subject)
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
    async with opened(world.open_feed("monitor", feed)) as source:
        await deliveries_of(source, 1)
    assert await config_of(link, name) == before


async def test_a_stream_that_goes_away_while_it_is_read_is_waited_for_and_read_anew(
    world, link, make, name
):
    await make(5)
    async with opened(
        world.open_feed("monitor", ForeignStream(stream=name, start="all"))
    ) as source:
        for delivery in await deliveries_of(source, 5):
            await delivery.ack()
        receiving = asyncio.create_task(deliveries_of(source, 2))
        await api.call(link, f"STREAM.DELETE.{name}")
        await make(2)
        assert seqs(await receiving) == [1, 2]
