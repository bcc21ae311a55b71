"""Deltas on a server: they are in no stream, and nothing waits for them."""

from __future__ import annotations

import asyncio

import nats as client
import pytest

from streams.embedded import EmbeddedNats
from streams.errors import Incompatible
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages.deltas import CoreDeltas
from tests.contracts.test_deltas import SOON_S, delta, heard

LIMITED = """
authorization {{ users: [
  {{user: "mute", password: "x", permissions: {{publish: {{deny: "{stack}.stream.>"}}}}}},
  {{user: "deaf", password: "x", permissions: {{subscribe: {{deny: "{stack}.stream.>"}}}}}},
] }}
"""


async def test_no_stream_has_them(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        async with ports.deltas.listen("e1") as listener:
            ports.deltas.publish("e1", delta(text="hello"))
            await heard(listener, 1)
        connection = await client.connect(nats.url)
        every = [each.config.subjects for each in await connection.jetstream().streams_info()]
        await connection.close()
    assert not [each for subjects in every for each in subjects if ".stream." in each]


async def test_what_a_newer_version_has_written_is_passed_over(nats, stack):
    async with (
        connect(nats.url, stack=stack) as ports,
        ports.deltas.listen("e1") as listener,
    ):
        connection = await client.connect(nats.url)
        await connection.publish(stack.deltas("e1"), b'{"path":{"newer":1}}')
        await connection.flush()
        await connection.close()
        ports.deltas.publish("e1", delta())
        assert await heard(listener, 1) == [delta()]


async def test_what_comes_between_two_connections_is_lost_and_the_rest_is_heard(nats, stack):
    async with Link(nats.url, LinkSettings()) as link:
        deltas = CoreDeltas(link, stack)
        async with deltas.listen("e1") as listener:
            await link.session.abandon()
            deltas.publish("e1", delta(0))
            async with asyncio.timeout(SOON_S):
                found = []
                while not found:
                    deltas.publish("e1", delta(1))
                    found = await listener.receive(most=1, wait_s=0.05)
            assert found == [delta(1)]


async def test_a_user_who_may_not_publish_them_publishes_the_rest(stack, tmp_path):
    settings = LinkSettings(user="mute", password="x")
    with EmbeddedNats(tmp_path, extra_config=LIMITED.format(stack=stack.name)) as server:
        async with connect(server.url, stack=stack, settings=settings) as ports:
            for place in range(3):
                ports.deltas.publish("e1", delta(place))
                await ports.registry.put("mode.n1", b"x")
            async with ports.deltas.listen("e1") as listener:
                assert await listener.receive(most=1, wait_s=0.01) == []


async def test_a_user_who_may_not_listen_is_told_so(stack, tmp_path):
    settings = LinkSettings(user="deaf", password="x")
    with EmbeddedNats(tmp_path, extra_config=LIMITED.format(stack=stack.name)) as server:
        async with connect(server.url, stack=stack, settings=settings) as ports:
            with pytest.raises(Incompatible, match=f"may not subscribe to {stack.deltas('e1')}"):
                async with ports.deltas.listen("e1"):
                    pass
