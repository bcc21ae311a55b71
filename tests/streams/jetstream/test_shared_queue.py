"""Nodes that change one queue at the same moment: what each of them opened stays open."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from streams.errors import Incompatible
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports import shared_queue
from streams.jetstream.ports.bucket import JetStreamBucket
from streams.jetstream.ports.configs import GATES_MARKER_S
from streams.jetstream.ports.shared_queue import SharedQueue
from streams.keys import queue_key
from streams.layout import Stream
from tests.contracts.samples import deliveries_of
from tests.streams.jetstream.wire import eventually

RACES = 40
NODES = ("one", "two", "three")


@pytest.fixture
async def nodes(nats, stack):
    """The domain events as each node has them, over a connection of its own."""
    async with AsyncExitStack() as connected:
        every = [await connected.enter_async_context(connect(nats.url, stack=stack)) for _ in NODES]
        yield dict(zip(NODES, (ports.domain_events for ports in every), strict=True))


@pytest.fixture
async def link(nats, nodes):
    async with Link(nats.url, LinkSettings()) as link:
        yield link


class CountedBucket(JetStreamBucket):
    """A bucket that counts how often it was read."""

    gets = 0

    async def get(self, key):
        self.gets += 1
        return await super().get(key)


class SlowQueue(SharedQueue):
    """The queue as a node has it that stands still before it writes to it."""

    reached = asyncio.Event()
    goes_on = asyncio.Event()

    async def _write(self, link, filters, resume_seq):
        self.reached.set()
        await self.goes_on.wait()
        return await super()._write(link, filters, resume_seq)


@pytest.fixture
def queue(link, stack):
    """Makes the queue of `monitor` as a node has it that watches these events."""

    def as_node_has_it(*names, kind=SharedQueue):
        return kind(
            stream=stack.stream(Stream.EVENTS),
            name=stack.gate_durable("monitor"),
            filters=tuple(stack.event(name) for name in names),
            start="new",
            bucket=CountedBucket(link, stack.gates_bucket(), marker_s=GATES_MARKER_S),
            key=queue_key("monitor"),
        )

    return as_node_has_it


@pytest.fixture
async def standing(link, queue):
    """A node that is about to write `slow` to the queue, beside `old`; and how it ends."""
    SlowQueue.reached, SlowQueue.goes_on = asyncio.Event(), asyncio.Event()
    await queue("old").ensure(link)
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(queue("slow", kind=SlowQueue).ensure(link))
        await SlowQueue.reached.wait()
        yield slow
        SlowQueue.goes_on.set()


async def test_nodes_that_widen_one_queue_at_once_all_get_their_events_from_then_on(nodes):
    async def opened_and_published(node, actor, sources):
        sources.append(await nodes[node].open(actor, ["all", f"only.{node}"]))
        await nodes[node].publish(f"only.{node}", {}, id=f"{actor}-{node}")

    for number in range(RACES):
        actor, sources = f"a{number}", []
        await (await nodes["one"].open(actor, ["all"])).close()
        await asyncio.gather(*(opened_and_published(node, actor, sources) for node in NODES))
        assert await nodes["one"].watched(actor) == {"all", *(f"only.{each}" for each in NODES)}
        found = await deliveries_of(sources[0], len(NODES))
        assert {each.content.name for each in found} == {f"only.{each}" for each in NODES}
        await asyncio.gather(*(source.close() for source in sources))


async def test_nodes_that_make_one_queue_at_once_all_get_their_events(nodes):
    for number in range(RACES):
        actor = f"b{number}"
        sources = await asyncio.gather(*(nodes[each].open(actor, [each]) for each in NODES))
        assert await nodes["one"].watched(actor) == set(NODES)
        await asyncio.gather(*(source.close() for source in sources))


async def test_who_narrows_a_queue_takes_nothing_from_who_widens_it(nodes):
    for number in range(RACES):
        actor = f"c{number}"
        await (await nodes["one"].open(actor, ["kept", "gone"])).close()
        _, source = await asyncio.gather(
            nodes["one"].unwatch(actor, ["gone"]), nodes["two"].open(actor, ["kept", "new"])
        )
        assert await nodes["one"].watched(actor) == {"kept", "new"}
        await source.close()


async def test_a_node_that_is_changing_a_queue_is_waited_for(link, queue, standing):
    quick = queue("quick")
    opening = asyncio.create_task(quick.ensure(link))

    async def has_looked_again_or_ended():
        return quick.bucket.gets > 1 or opening.done()

    await eventually(has_looked_again_or_ended)
    assert not opening.done()
    SlowQueue.goes_on.set()
    await opening
    assert standing.done()


async def test_a_node_that_dies_while_it_changes_a_queue_is_not_waited_for_for_ever(
    link, queue, standing, monkeypatch
):
    monkeypatch.setattr(shared_queue, "APPLY_S_MAX", 0.2)
    quick = queue("quick")
    await quick.ensure(link)
    assert not standing.done()
    assert len(await quick.filters_there(link)) == len(("old", "slow", "quick"))


async def test_a_node_that_writes_late_gives_back_what_it_took_away(
    link, queue, standing, monkeypatch
):
    monkeypatch.setattr(shared_queue, "APPLY_S_MAX", 0.2)
    quick = queue("quick")
    await quick.ensure(link)
    SlowQueue.goes_on.set()
    await standing
    assert len(await quick.filters_there(link)) == len(("old", "slow", "quick"))


async def test_a_queue_that_was_deleted_comes_back_with_the_events_of_all_nodes(nodes, link, stack):
    await (await nodes["one"].open("monitor", ["one"])).close()
    await (await nodes["two"].open("monitor", ["two"])).close()
    stream, durable = stack.stream(Stream.EVENTS), stack.gate_durable("monitor")
    await api.call(link, f"CONSUMER.DELETE.{stream}.{durable}")
    await (await nodes["one"].open("monitor", ["one"])).close()
    assert await nodes["one"].watched("monitor") == {"one", "two"}


async def test_nobody_waits_for_a_change_that_the_server_refused(link, queue, stack):
    overlapping = replace(queue(), filters=(f"{stack.name}.event.>", stack.event("thing")))
    with pytest.raises(Incompatible):
        await overlapping.ensure(link)
    quick = queue("quick")
    await quick.ensure(link)
    assert quick.bucket.gets == 1
