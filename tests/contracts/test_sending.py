"""What every `World` promises of messages to subjects that are not the engine's."""

from __future__ import annotations

import pytest

from streams.errors import BadName, TooLarge, Uncaptured
from streams.layout import Stream
from streams.ports.domain_events import Sent
from tests.contracts.samples import SILENCE_S, deliveries_of, opened


@pytest.fixture
def world(ports):
    return ports.domain_events


async def test_a_message_is_kept_by_the_stream_that_captures_its_subject(world, orders):
    async with opened(world.open_feed("monitor", orders.feed())) as source:
        sent = await world.send(f"{orders.name}.placed", b'{"n": 1}', id="m-1", headers={"x": "y"})
        (delivery,) = await deliveries_of(source, 1)
    assert sent == Sent(stream=orders.name, seq=1)
    assert (delivery.content.id, delivery.content.payload) == (f"{orders.name}/m-1", {"n": 1})


async def test_a_message_of_one_id_is_kept_once(world, orders):
    async with opened(world.open_feed("monitor", orders.feed())) as source:
        first = await world.send(f"{orders.name}.placed", b'{"n": 1}', id="m-1")
        again = await world.send(f"{orders.name}.placed", b'{"n": 2}', id="m-1")
        (delivery,) = await deliveries_of(source, 1)
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []
    assert first == again
    assert delivery.content.payload == {"n": 1}


async def test_a_message_counts_in_a_chain_of_events(world, orders):
    async with opened(world.open_feed("monitor", orders.feed())) as source:
        await world.send(f"{orders.name}.placed", b"{}", id="m-1", hops=3)
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content.hops == 3


async def test_a_message_to_an_event_of_the_stack_is_that_event(world, stack):
    async with opened(world.open("monitor", ["order.placed"])) as source:
        sent = await world.send(stack.event("order.placed"), b'{"n": 1}', id="m-1", hops=2)
        (delivery,) = await deliveries_of(source, 1)
    assert sent == Sent(stream=stack.stream(Stream.EVENTS), seq=1)
    assert (delivery.content.id, delivery.content.hops) == ("m-1", 2)


async def test_a_message_that_no_stream_captures_is_said_to_be_lost(world):
    with pytest.raises(Uncaptured):
        await world.send("nobody.listens", b"{}", id="m-1")


async def test_a_message_over_the_limit_is_refused(world, orders):
    with pytest.raises(TooLarge):
        await world.send(f"{orders.name}.placed", b"x" * 1024 * 1024, id="m-1")


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "a..b",
        "a b",
        "a\nb",
        "a.*",
        "a.>",
        "x" * 1025,
        "$JS.API.STREAM.DELETE.x",
        "$KV.x-claims.y",
        "_INBOX.x",
    ],
)
async def test_a_message_goes_to_one_subject_that_is_not_the_servers(world, subject):
    with pytest.raises(BadName):
        await world.send(subject, b"{}", id="m-1")


@pytest.mark.parametrize("rest", ["", ".event", ".episode.x", ".inbox.x", ".event.a b", ".other"])
async def test_nothing_but_events_goes_to_what_is_the_stacks_own(world, stack, rest):
    with pytest.raises(BadName):
        await world.send(f"{stack.name}{rest}", b"{}", id="m-1")


@pytest.mark.parametrize("name", ["Nats-Rollup", "nats-ttl", "Vigil-Hops", "a b", "a:b", "", "ä"])
async def test_a_header_that_tells_the_server_what_to_do_is_refused(world, orders, name):
    with pytest.raises(BadName):
        await world.send(f"{orders.name}.placed", b"{}", id="m-1", headers={name: "x"})
