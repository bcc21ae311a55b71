"""Several work queues as one: a node takes no more from all of them than it has room for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import nats as nats_py
import pytest

from streams.jetstream import LinkSettings, connect
from streams.layout import Kind, Stream
from tests.contracts.samples import SILENCE_S, WAIT_S, deliveries_of, opened, start

PARTITIONS = 3
NAMES = [f"e{n}" for n in range(30)]


@pytest.fixture
async def ports(nats, stack):
    settings = LinkSettings(partitions=PARTITIONS)
    async with connect(nats.url, stack=stack, settings=settings) as ports:
        yield ports


@pytest.fixture
async def queues(nats, ports) -> AsyncIterator:
    """Asks the server about the actor's queue in each partition."""
    connection = await nats_py.connect(nats.url)

    async def ask():
        js, work = connection.jetstream(), ports.stack.partitions_of(Stream.WORK)
        names = [ports.stack.stream(Stream.WORK, partition) for partition in work]
        durable = ports.stack.inbox_durable("monitor")
        return [await js.consumer_info(name, durable) for name in names]

    yield ask
    await connection.close()


async def send_all(ports):
    for name in NAMES:
        await ports.commands.send(start(name), id=name)


@pytest.mark.parametrize("room", [1, 2, 3, 7])
async def test_what_is_given_to_a_node_is_never_more_than_it_has_room_for(ports, queues, room):
    await send_all(ports)
    async with opened(ports.commands.open("monitor")) as source:
        taken = []
        while len(taken) < room:
            taken += await source.receive(room=room - len(taken), wait_s=WAIT_S)
            assert sum(queue.num_ack_pending for queue in await queues()) <= room
        assert len(taken) == room
        assert sum(queue.num_ack_pending for queue in await queues()) == room
        assert sum(queue.num_waiting for queue in await queues()) == 0


async def test_what_quiet_queues_were_asked_for_counts_as_taken(ports, queues):
    home = ports.stack.partition_of(Kind.EPISODE, NAMES[0])
    async with opened(ports.commands.open("monitor")) as source:
        assert list(await source.receive(room=3, wait_s=SILENCE_S)) == []
        await ports.commands.send(start(NAMES[0]), id="first")
        taken = await deliveries_of(source, 1)
        await send_all(ports)
        while len(taken) < 3:
            taken += await source.receive(room=3 - len(taken), wait_s=WAIT_S)
        pending = [queue.num_ack_pending for queue in await queues()]
    assert sum(pending) == 3
    assert pending[home] >= 1


async def test_room_that_comes_back_is_used_for_every_partition(ports):
    await send_all(ports)
    async with opened(ports.commands.open("monitor")) as source:
        seen = []
        while len(seen) < len(NAMES):
            for delivery in await source.receive(room=2, wait_s=WAIT_S):
                seen.append(delivery.content.episode_id)
                await delivery.ack()
    assert sorted(seen) == sorted(NAMES)


async def test_a_queue_with_much_to_do_gets_the_room_that_quiet_ones_leave(ports):
    home = ports.stack.partition_of(Kind.EPISODE, "e0")
    names = [f"e{n}" for n in range(200)]
    names = [name for name in names if ports.stack.partition_of(Kind.EPISODE, name) == home][:40]
    for name in names:
        await ports.commands.send(start(name), id=name)
    async with opened(ports.commands.open("monitor")) as source:
        found = await deliveries_of(source, 40)
    assert [each.content.episode_id for each in found] == names


async def test_a_paused_source_has_asked_no_queue_for_anything(ports, queues):
    async with opened(ports.commands.open("monitor")) as source:
        assert list(await source.receive(room=6, wait_s=SILENCE_S)) == []
        assert sum(queue.num_waiting for queue in await queues()) == PARTITIONS
        await source.pause()
        assert sum(queue.num_waiting for queue in await queues()) == 0


async def test_what_was_brought_and_never_returned_goes_to_another_node(ports, queues):
    async with opened(ports.commands.open("monitor")) as source:
        assert list(await source.receive(room=6, wait_s=SILENCE_S)) == []
        await send_all(ports)
        first = await source.receive(room=1, wait_s=WAIT_S)
    async with opened(ports.commands.open("monitor")) as other:
        found = await deliveries_of(other, len(NAMES) - len(first))
    assert sorted(each.content.episode_id for each in [*first, *found]) == sorted(NAMES)
