"""Which messages are points, and what a strike between two of them does to either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import nats as nats_client

from streams.embedded import EmbeddedNats
from tests.attack.interception import MessageCounter
from tests.streams.jetstream.wire import Wire, eventually

ORDER: Final = "order000001"
EPISODE: Final = "0c043058-db6d-81b1-86e9-27853dad373b"


def published(subject: str, body: str, reply: str = "") -> bytes:
    return f"PUB {subject} {reply} {len(body)}\r\n{body}\r\n".encode()


def delivered(subject: str, body: str, reply: str) -> bytes:
    return f"MSG {subject} 1 {reply} {len(body)}\r\n{body}\r\n".encode()


def nothing(_: str) -> None:
    """Strike nobody."""


def points(*requests: bytes, answers: bytes = b"") -> list[str]:
    counter = MessageCounter()
    counter.begin(ORDER)
    counter.deliveries()(answers)
    gate = counter.gate(nothing)
    for request in requests:
        assert b"".join(gate(request)) == request
    return counter.points


def test_a_message_that_names_the_order_is_a_point():
    assert points(published("s.timer.a.b.c", f"about {ORDER}")) == ["timer.1"]
    assert points(published(f"$KV.s-claims.episode.a.{ORDER}", "n1")) == ["claims.1"]


def test_a_message_about_others_is_none():
    assert points(published("s.episode.other", "order000002")) == []
    assert points(b"PING\r\n", b"SUB a 1\r\n") == []


def test_a_read_of_a_stream_is_none():
    assert points(published(f"$JS.API.DIRECT.GET.s-journal.{ORDER}", "")) == []


def test_an_episode_that_was_opened_for_the_order_counts_from_then_on():
    subject = f"s.episode.{EPISODE}"

    assert points(published(subject, ORDER), published(subject, "more")) == [
        "episode.1",
        "episode.2",
    ]
    assert points(published(subject, "more")) == []


def test_the_acknowledgement_of_a_delivery_about_the_order_is_a_point():
    reply = "$JS.ACK.s-work.inbox.1.1.1.1.0"
    about_it = delivered("s.inbox.episode.a.b", ORDER, reply)

    assert points(published(reply, "+ACK"), answers=about_it) == ["ack.1"]
    assert points(published(reply, "+ACK")) == []


def test_a_message_in_pieces_goes_through_once_it_is_whole():
    counter = MessageCounter()
    counter.begin(ORDER)
    gate, whole = counter.gate(nothing), published("s.event.a", ORDER)

    assert list(gate(whole[:9])) == []
    assert list(gate(whole[9:])) == [whole]


def lose(wire: Wire) -> None:
    wire.loses_requests = wire.loses_answers = True


async def test_what_is_struck_before_it_leaves_is_lost_with_all_behind_it(nats: EmbeddedNats):
    def strike(wire: Wire, point: str) -> None:
        if point == "event.2":
            lose(wire)

    assert await kept(nats, strike, least=1) == [f"{ORDER}-0"]


async def test_what_is_struck_once_it_has_left_arrives_and_nothing_behind_it(nats: EmbeddedNats):
    def strike(wire: Wire, point: str) -> Callable[[], None] | None:
        return partial(lose, wire) if point == "event.2" else None

    assert await kept(nats, strike, least=2) == [f"{ORDER}-0", f"{ORDER}-1"]


async def kept(
    nats: EmbeddedNats, strike: Callable[[Wire, str], Callable[[], None] | None], *, least: int
) -> list[str]:
    """Return what a server has of three messages whose sender was struck, and is gone by now."""
    counter = MessageCounter()
    counter.begin(ORDER)
    client = await nats_client.connect(nats.url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="s", subjects=["s.event.>"])

    async def has_enough() -> bool:
        return (await jetstream.stream_info("s")).state.messages >= least

    async with Wire(nats.url, gate=lambda: counter.gate(partial(strike, wire))) as wire:
        port = int(wire.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bodies = [f"{ORDER}-{number}" for number in range(3)]
        writer.write(b"".join(published("s.event.a", body) for body in bodies))
        writer.write_eof()
        await reader.read()
        writer.close()
    await eventually(has_enough)
    found = [await jetstream.get_msg("s", seq) for seq in range(1, least + 1)]
    assert (await jetstream.stream_info("s")).state.messages == least
    await jetstream.delete_stream("s")
    await client.close()
    return [(message.data or b"").decode() for message in found]
