"""What every `ArchiveStore` promises."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from streams.archive.folder import FolderArchive
from streams.archive.memory import MemoryArchive
from streams.errors import BadName
from streams.jetstream.archive.store import jetstream_archive
from tests.s3_server import s3_archive

ADAPTERS = ("memory", "folder", "jetstream", "s3")

SIZES = (1, 512 * 1024, 512 * 1024 + 1, 5 * 1024 * 1024)
"""In bytes: a chunk of a server's, more than one, and more than a message."""

NAME = "vigil/journal/20300131/00000000000000000001.vigseg"


def octets(size: int) -> bytes:
    return (b"%08d" % size * (size // 8 + 1))[:size]


@pytest.fixture
async def store(adapter, server, stack, tmp_path):
    async with opened(adapter, server, stack, tmp_path) as archive:
        yield archive


@asynccontextmanager
async def opened(adapter, server, stack, folder):
    match adapter:
        case "memory":
            yield MemoryArchive()
        case "folder":
            yield FolderArchive(folder / "archive")
        case "jetstream":
            async with jetstream_archive(server.url, stack=stack) as archive:
                yield archive
        case "s3":
            async with s3_archive(prefix=stack.name) as archive:
                yield archive


async def test_what_was_never_created_is_not_there(store):
    assert await store.read(NAME) is None
    assert await store.read(NAME, start=-8) is None
    assert await store.names("vigil") == []


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_is_read_as_it_was_created(store, size):
    assert await store.create(NAME, octets(size))
    assert await store.read(NAME) == octets(size)


async def test_a_part_of_a_file_is_read_alone(store):
    data = octets(3 * 512 * 1024 + 17)
    await store.create(NAME, data)
    assert await store.read(NAME, start=512 * 1024 - 3, length=10) == data[512 * 1024 - 3 :][:10]
    assert await store.read(NAME, start=len(data) - 5) == data[-5:]
    assert await store.read(NAME, start=-7) == data[-7:]
    assert await store.read(NAME, start=-7, length=3) == data[-7:-4]
    assert await store.read(NAME, start=4, length=0) == b""
    assert await store.read(NAME, start=-len(data) - 100) == data


async def test_a_file_is_created_once(store):
    assert await store.create(NAME, b"first")
    assert not await store.create(NAME, b"second")
    assert await store.read(NAME) == b"first"


async def test_of_many_who_create_a_file_at_a_time_one_does(store):
    contents = [b"writer %d" % number for number in range(8)]
    created = await asyncio.gather(*(store.create(NAME, data) for data in contents))
    assert sum(created) == 1
    assert await store.read(NAME) == contents[created.index(True)]


async def test_names_are_told_in_order_and_by_folder(store):
    for name in ("a/b/2", "a/b/10", "a/bc/1", "b/1"):
        await store.create(name, b"x")
    assert await store.names("a") == ["a/b/10", "a/b/2", "a/bc/1"]
    assert await store.names("a/b") == ["a/b/10", "a/b/2"]
    assert await store.names("c") == []


async def test_what_is_deleted_is_gone_and_can_be_created_anew(store):
    for name in ("a/1", "a/2"):
        await store.create(name, octets(600 * 1024))
    await store.delete("a/1")
    await store.delete("a/1")
    await store.delete("b/none")
    assert await store.read("a/1") is None
    assert await store.names("a") == ["a/2"]
    assert await store.read("a/2") == octets(600 * 1024)
    assert await store.create("a/1", b"anew")
    assert await store.read("a/1") == b"anew"


@pytest.mark.parametrize("name", ["", "/a", "a/", "../a", "a/../b", ".hidden", "a b", "a" * 401])
async def test_a_name_that_could_lead_elsewhere_is_refused(store, name):
    with pytest.raises(BadName):
        await store.create(name, b"x")
    with pytest.raises(BadName):
        await store.read(name)


async def test_it_says_where_it_is(store):
    assert store.address
