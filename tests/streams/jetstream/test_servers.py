"""The servers of a cluster: those that an operator lists, and those that it names itself."""

from __future__ import annotations

import socket
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from streams.errors import Unavailable
from streams.jetstream import LinkSettings
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.servers import neighbours
from tests.streams.jetstream.wire import eventually

CLUSTER: Final = """
server_name: {name}
authorization {{ users: [{{user: node, password: x}}] }}
cluster {{ name: c, listen: "127.0.0.1:{port}", routes: ["nats://127.0.0.1:{other}"] }}
"""


def unused_ports():
    with socket.socket() as one, socket.socket() as another:
        one.bind(("127.0.0.1", 0))
        another.bind(("127.0.0.1", 0))
        return one.getsockname()[1], another.getsockname()[1]


@pytest.mark.parametrize(
    ("server", "reached"),
    [
        ("nats://a:4222", "nats://b:4222"),
        ("a", "nats://b:4222"),
        ("tls://a", "tls://b:4222"),
        ("nats://node:x@a:4222", "nats://node:x@b:4222"),
        ("node:x@a", "nats://node:x@b:4222"),
        ("nats://token@a", "nats://token@b:4222"),
    ],
)
def test_a_neighbour_is_reached_as_the_server_that_was_listed(server, reached):
    assert neighbours(server, ["b:4222"]) == [reached]


async def test_a_link_goes_on_with_a_neighbour_that_wants_the_password_too(tmp_path):
    here, there = unused_ports()
    ours = CLUSTER.format(name="a", port=here, other=there)
    theirs = CLUSTER.format(name="b", port=there, other=here)
    with (
        EmbeddedNats(tmp_path / "a", jetstream=False, extra_config=ours) as listed,
        EmbeddedNats(tmp_path / "b", jetstream=False, extra_config=theirs),
    ):
        url = listed.url.replace("//", "//node:x@")
        async with Link(url, LinkSettings()) as link:

            async def knows_both() -> bool:
                return len(link.session.servers) > 1

            async def is_back() -> bool:
                return is_up(link)

            await eventually(knows_both)
            ended = link.session.ended
            listed.kill()
            await ended.wait()
            await eventually(is_back)
        listed.restart()


def is_up(link):
    try:
        return not link.session.ended.is_set()
    except Unavailable:
        return False
