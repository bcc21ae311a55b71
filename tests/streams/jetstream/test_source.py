"""Sharing a durable consumer: nothing is taken that is not returned, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from streams.errors import Unavailable
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.layout import Stream
from streams.ports.delivery import ACK_WAIT_S
from tests.contracts.samples import deliveries_of, start
from tests.streams.jetstream.wire import eventually


@pytest.fixture
async def ports(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        yield ports


@pytest.fixture
async def link(nats):
    async with Link(nats.url, LinkSettings()) as link:
        yield link


async def info(link, stack):
    stream, durable = stack.stream(Stream.EVENTS), stack.gate_durable("monitor")
    return await api.call(link, f"CONSUMER.INFO.{stream}.{durable}")


async def is_pulled(link, stack):
    """Wait until a pull is at the server: one that meets the deletion on its way has no answer."""

    async def is_waiting():
        return (await info(link, stack))["num_waiting"] == 1

    await eventually(is_waiting)


async def delete_consumer(link, stack):
    stream, durable = stack.stream(Stream.EVENTS), stack.gate_durable("monitor")
    await link.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{durable}")


async def publish(ports, *numbers):
    for number in numbers:
        await ports.domain_events.publish("disk.checked", {"n": number}, id=f"ev-{number}")


def numbers_of(deliveries):
    return [delivery.content.payload["n"] for delivery in deliveries]


async def test_room_for_two_leaves_the_third_to_others(ports):
    one = await ports.domain_events.open("monitor", ["disk.checked"])
    other = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1, 2, 3)
    assert numbers_of(await deliveries_of(one, 2)) == [1, 2]
    assert numbers_of(await other.receive(room=2, wait_s=5.0)) == [3]
    await one.close()
    await other.close()


async def test_what_comes_while_deliveries_are_worked_on_is_there_for_the_next_receive(
    ports, link, stack
):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1)
    assert numbers_of(await source.receive(room=2, wait_s=5.0)) == [1]
    await publish(ports, 2)

    async def has_arrived():
        return (await info(link, stack))["num_ack_pending"] == 2

    await eventually(has_arrived)
    assert numbers_of(await source.receive(room=2, wait_s=5.0)) == [2]
    await source.close()


async def test_no_room_left_is_no_pull_left(ports, link, stack):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1, 2)
    assert numbers_of(await deliveries_of(source, 1)) == [1]
    found = await info(link, stack)
    assert (found["num_waiting"], found["num_pending"]) == (0, 1)
    await source.close()


async def test_a_silent_receive_leaves_no_pull_behind(ports, link, stack):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    assert list(await source.receive(room=2, wait_s=0.1)) == []
    assert (await info(link, stack))["num_waiting"] == 0
    await source.close()


async def test_before_it_asks_again_a_receive_checks_whether_it_still_may(ports, link, stack):
    checks = []

    def check():
        checks.append(len(checks))
        if len(checks) > 1:
            raise Unavailable("the queue", detail="another node pulls it")

    source = await ports.domain_events.open("monitor", ["disk.checked"])
    receiving = asyncio.create_task(source.receive(room=1, wait_s=60.0, check=check))
    await is_pulled(link, stack)
    await delete_consumer(link, stack)
    with pytest.raises(Unavailable, match="another node"):
        await receiving
    await source.close()


async def test_no_more_is_asked_for_than_there_is_room(ports, link, stack):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1)
    assert numbers_of(await source.receive(room=2, wait_s=5.0)) == [1]
    receiving = asyncio.create_task(source.receive(room=2, wait_s=5.0))
    await publish(ports, 2, 3, 4)
    assert numbers_of(await receiving)[0] == 2

    async def has_what_it_asked_for():
        return (await info(link, stack))["num_waiting"] == 0

    await eventually(has_what_it_asked_for)
    assert (await info(link, stack))["num_pending"] == 1
    await source.close()


async def test_a_pause_leaves_no_pull_behind(ports, link, stack):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1)
    assert numbers_of(await source.receive(room=3, wait_s=5.0)) == [1]
    assert (await info(link, stack))["num_waiting"] == 1
    await source.pause()
    assert (await info(link, stack))["num_waiting"] == 0
    await source.close()


@pytest.fixture
async def half_received(wire, nats, stack, link):
    """A source that received one delivery; the next has left the server and has not arrived."""
    async with connect(nats.url, stack=stack) as near, connect(wire.url, stack=stack) as far:
        source = await far.domain_events.open("monitor", ["disk.checked"])
        await publish(near, 1)
        assert numbers_of(await source.receive(room=2, wait_s=20.0)) == [1]
        wire.holds_answers = True
        await publish(near, 2)

        async def is_delivered():
            return (await info(link, stack))["num_ack_pending"] == 2

        await eventually(is_delivered)
        yield source
        await source.close()


async def test_a_pause_hands_back_what_is_still_on_its_way(ports, wire, half_received):
    """Nobody waits for the acknowledgement's deadline."""
    staying = await ports.domain_events.open("monitor", ["disk.checked"])
    pausing = asyncio.create_task(half_received.pause())
    await asyncio.sleep(0)
    wire.holds_answers = False
    async with asyncio.timeout(ACK_WAIT_S / 2):
        assert numbers_of(await deliveries_of(staying, 1)) == [2]
    await pausing
    await staying.close()


async def test_what_is_still_on_its_way_is_handed_back_behind_what_is_older(
    ports, wire, half_received
):
    staying = await ports.domain_events.open("monitor", ["disk.checked"])
    handing = asyncio.create_task(half_received.hand_back())
    await asyncio.sleep(0)
    wire.holds_answers = False
    assert await handing
    async with asyncio.timeout(ACK_WAIT_S / 2):
        assert numbers_of(await deliveries_of(staying, 2)) == [1, 2]
    await staying.close()


async def test_what_is_handed_back_to_a_server_that_is_gone_may_come_late(
    ports, wire, half_received
):
    wire.cut()
    assert not await half_received.hand_back()


async def test_a_pause_that_was_cancelled_is_over_when_the_next_receive_asks(
    ports, wire, half_received
):
    pausing = asyncio.create_task(half_received.pause())
    await asyncio.sleep(0)
    pausing.cancel()
    await asyncio.wait([pausing])
    wire.holds_answers = False
    async with asyncio.timeout(ACK_WAIT_S / 2):
        (delivery,) = await deliveries_of(half_received, 1)
    assert (numbers_of([delivery]), delivery.deliveries) == ([2], 2)


@pytest.fixture
async def on_the_wire(wire, nats, stack, link):
    """A source with a delivery that has left the server and has not arrived."""
    async with connect(nats.url, stack=stack) as near, connect(wire.url, stack=stack) as far:
        source = await far.domain_events.open("monitor", ["disk.checked"])
        receiving = asyncio.create_task(source.receive(room=5, wait_s=20.0))

        async def is_pulling():
            return (await info(link, stack))["num_waiting"] == 1

        async def is_delivered():
            return (await info(link, stack))["num_ack_pending"] == 1

        await eventually(is_pulling)
        wire.holds_answers = True
        await publish(near, 1)
        await eventually(is_delivered)
        yield source
        await asyncio.wait([receiving])


async def came_soon(staying):
    """Check that the one event is here long before the deadline of its acknowledgement."""
    async with asyncio.timeout(ACK_WAIT_S / 2):
        assert numbers_of(await deliveries_of(staying, 1)) == [1]
    await staying.close()


async def test_closing_hands_back_what_is_still_on_its_way(ports, wire, on_the_wire):
    """Nobody waits for the acknowledgement's deadline."""
    staying = await ports.domain_events.open("monitor", ["disk.checked"])
    closing = asyncio.create_task(on_the_wire.close())
    await asyncio.sleep(0)
    wire.holds_answers = False
    await came_soon(staying)
    await closing


async def test_a_close_that_was_cancelled_goes_on(ports, wire, on_the_wire):
    staying = await ports.domain_events.open("monitor", ["disk.checked"])
    closing = asyncio.create_task(on_the_wire.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    closing = asyncio.create_task(on_the_wire.close())
    await asyncio.sleep(0)
    wire.holds_answers = False
    await came_soon(staying)
    await closing


async def test_closing_hands_back_what_a_cancelled_receive_had_asked_for(ports, link, stack):
    """Nobody waits for the acknowledgement's deadline."""
    leaving = await ports.domain_events.open("monitor", ["disk.checked"])
    staying = await ports.domain_events.open("monitor", ["disk.checked"])
    receiving = asyncio.create_task(leaving.receive(room=5, wait_s=20.0))

    async def is_pulling():
        return (await info(link, stack))["num_waiting"] == 1

    await eventually(is_pulling)
    receiving.cancel()
    await asyncio.wait([receiving])
    await leaving.close()
    await publish(ports, 1)
    async with asyncio.timeout(ACK_WAIT_S / 2):
        assert numbers_of(await deliveries_of(staying, 1)) == [1]
    await staying.close()


async def test_what_a_cancelled_receive_had_asked_for_goes_to_the_next(ports, link, stack):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    receiving = asyncio.create_task(source.receive(room=1, wait_s=20.0))

    async def is_pulling():
        return (await info(link, stack))["num_waiting"] == 1

    await eventually(is_pulling)
    receiving.cancel()
    await asyncio.wait([receiving])
    await publish(ports, 1)
    assert numbers_of(await deliveries_of(source, 1)) == [1]
    await source.close()


async def test_a_deleted_consumer_comes_back_and_skips_nothing_that_was_not_done(
    ports, link, stack
):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1, 2, 3)
    first, second, third = await deliveries_of(source, 3)
    await first.ack()
    await third.ack()
    receiving = asyncio.create_task(deliveries_of(source, 3))
    await is_pulled(link, stack)
    await delete_consumer(link, stack)
    await publish(ports, 4)
    deliveries = await receiving
    assert numbers_of(deliveries) == [2, 3, 4]
    await second.ack()
    await source.close()


async def test_a_deleted_consumer_that_nothing_came_from_yet_comes_back_where_it_was(
    ports, link, stack
):
    """Not at the beginning of the stream, which may be a month ago."""
    await publish(ports, 1, 2)
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    receiving = asyncio.create_task(deliveries_of(source, 1))
    await is_pulled(link, stack)
    await delete_consumer(link, stack)
    await publish(ports, 3)
    assert numbers_of(await receiving) == [3]
    await source.close()


async def test_a_consumer_that_came_back_takes_no_offence_at_a_new_node(ports, link, stack):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, 1)
    await deliveries_of(source, 1)
    receiving = asyncio.create_task(deliveries_of(source, 1))
    await is_pulled(link, stack)
    await delete_consumer(link, stack)
    (again,) = await receiving
    assert numbers_of([again]) == [1]
    await again.ack()
    newcomer = await ports.domain_events.open("monitor", ["disk.checked", "disk.replaced"])
    await ports.domain_events.publish("disk.replaced", {"n": 9}, id="ev-9")
    assert numbers_of(await deliveries_of(newcomer, 1)) == [9]
    await source.close()
    await newcomer.close()


async def test_a_queue_that_the_server_cannot_widen_is_not_opened(own_nats, tmp_path, stack):
    """Its disk may be full; or its files gone, as here. A queue that lacks our events is no use."""
    async with connect(own_nats.url, stack=stack) as ports:
        await (await ports.domain_events.open("monitor", ["disk.checked"])).close()
        (files,) = tmp_path.rglob(f"obs/{stack.gate_durable('monitor')}")
        shutil.rmtree(files)
        with pytest.raises(Unavailable, match="consumer"):
            await ports.domain_events.open("monitor", ["disk.checked", "disk.replaced"])


async def test_an_operators_tuning_of_the_consumer_is_kept(ports, link, stack):
    await (await ports.domain_events.open("monitor", ["disk.checked"])).close()
    config = (await info(link, stack))["config"]
    stream, durable = stack.stream(Stream.EVENTS), stack.gate_durable("monitor")
    tuned = {"stream_name": stream, "config": {**config, "max_ack_pending": 7}}
    await api.call(link, f"CONSUMER.CREATE.{stream}.{durable}", tuned)
    await (await ports.domain_events.open("monitor", ["disk.checked", "disk.replaced"])).close()
    found = (await info(link, stack))["config"]
    assert found["max_ack_pending"] == 7
    assert sorted(found["filter_subjects"]) == [
        stack.event("disk.checked"),
        stack.event("disk.replaced"),
    ]


async def test_a_command_handed_back_comes_again_when_it_was_said(ports):
    source = await ports.commands.open("monitor")
    await ports.commands.send(start("e1"), id="1")
    (delivery,) = await deliveries_of(source, 1)
    await delivery.nak(delay_s=0.2)
    assert list(await source.receive(room=1, wait_s=0.05)) == []
    (again,) = await deliveries_of(source, 1)
    assert (again.content, again.deliveries) == (start("e1"), 2)
    await again.ack()
    await source.close()


async def test_pending_says_what_waits(ports):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    await publish(ports, *range(5))
    await deliveries_of(source, 2)
    assert source.pending == 3
    await deliveries_of(source, 3)
    assert source.pending == 0
    await source.close()
