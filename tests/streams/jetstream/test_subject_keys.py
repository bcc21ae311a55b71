"""Keys of subjects of data on a server: made once, and gone from the disk when destroyed."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest

from streams.embedded import EmbeddedNats
from streams.jetstream import add_kinds, connect, read_kinds
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.sealing.subject_keys import JetStreamSubjectKeys
from streams.json import raw
from streams.sealing.log import SealedLog
from streams.subjects import Stack


def times_on_disk(folder: Path, wanted: bytes) -> int:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return sum(each.read_bytes().count(wanted) for each in files)


@pytest.fixture
def server(tmp_path):
    """A server that a test has for itself, and whose files it may look at."""
    with EmbeddedNats(tmp_path, sync="always") as nats:
        yield nats
        nats.kill()


async def prepared(server: EmbeddedNats, stack: Stack) -> None:
    async with connect(server.url, stack=stack):
        pass
    assert await add_kinds(server.url, stack=stack, kinds=["client_id"]) == ("client_id",)


async def test_all_that_make_a_key_get_the_same(server, stack):
    await prepared(server, stack)
    async with Link(server.url, LinkSettings()) as link:
        keys = [JetStreamSubjectKeys(link, stack) for _ in range(5)]
        made = await asyncio.gather(*(each.make("k1") for each in keys))
        assert len({each.secret for each in made}) == 1
        assert await keys[0].get("k1") == made[0]
        assert await keys[0].names() == ["k1"]


async def test_a_destroyed_key_is_not_on_the_disk(server, stack, tmp_path):
    await prepared(server, stack)
    async with Link(server.url, LinkSettings()) as link:
        keys = JetStreamSubjectKeys(link, stack)
        before, other = await keys.make("k1"), await keys.make("k2")
        as_stored = b64encode(before.secret)
        assert times_on_disk(tmp_path / "store", as_stored)

        assert await keys.destroy("k1") == before

        assert times_on_disk(tmp_path / "store", as_stored) == 0
        assert times_on_disk(tmp_path / "store", b64encode(other.secret))
        assert await keys.destroy("k1") is None
        again = await keys.make("k1")
        assert again.id != before.id
    server.restart()
    assert times_on_disk(tmp_path / "store", as_stored) == 0


async def test_a_stack_encrypts_once_it_is_told_to(server, stack):
    async with connect(server.url, stack=stack) as ports:
        assert not isinstance(ports.log, SealedLog)
    assert await read_kinds(server.url, stack=stack) == ()
    await add_kinds(server.url, stack=stack, kinds=["client_id"])
    await add_kinds(server.url, stack=stack, kinds=["client_id", "order.patient"])
    assert await read_kinds(server.url, stack=stack) == ("client_id", "order.patient")

    async with connect(server.url, stack=stack) as ports:
        payload = {"client_id": 7, "name": "Rosalind"}
        await ports.domain_events.publish("client.called", payload, id="x1")
        [event] = await ports.domain_events.page(after=0)
        assert event.payload == payload
        digest = await ports.objects.put(bytes(raw("plain")))
        assert await ports.objects.get(digest) == b'"plain"'
