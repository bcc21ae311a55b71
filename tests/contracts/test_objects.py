"""What every `ObjectStore` promises."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest

SIZES = (0, 1, 128 * 1024, 128 * 1024 + 1, 5 * 1024 * 1024)
"""In bytes: nothing, less and more than a chunk of the server's, and more than a message."""


def octets(size: int) -> bytes:
    return (b"%08d" % size) * (size // 8 + 1)


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_put_is_there_under_its_digest(ports, size):
    data = octets(size)[:size]

    digest = await ports.objects.put(data)

    assert digest == sha256(data).hexdigest()
    assert await ports.objects.get(digest) == data


async def test_what_was_never_put_is_not_there(ports):
    assert await ports.objects.get(sha256(b"").hexdigest()) is None


async def test_putting_it_again_changes_nothing(ports):
    first = await ports.objects.put(b"same")
    assert await ports.objects.put(b"same") == first
    assert await ports.objects.get(first) == b"same"


async def test_many_puts_of_the_same_at_a_time_are_one(ports):
    data = octets(300_000)
    digests = await asyncio.gather(*(ports.objects.put(data) for _ in range(5)))
    assert len(set(digests)) == 1
    assert await ports.objects.get(digests[0]) == data


async def test_each_has_a_place_of_its_own(ports):
    one, other = await asyncio.gather(ports.objects.put(b"one"), ports.objects.put(b"other"))
    assert await ports.objects.get(one) == b"one"
    assert await ports.objects.get(other) == b"other"


async def test_what_is_renewed_stays_as_it_was(ports):
    digest = await ports.objects.put(b"same")
    assert await ports.objects.renew(digest)
    assert await ports.objects.get(digest) == b"same"


async def test_what_is_not_there_cannot_be_renewed(ports):
    assert not await ports.objects.renew(sha256(b"").hexdigest())
