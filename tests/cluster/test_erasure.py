"""What is erased of a client is in no file of any of three servers, nor is the key that hid it."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from pathlib import Path
from typing import Final

import pytest

from streams.jetstream import LinkSettings, connect, connect_encrypted
from streams.model.sealed import key_name
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster
from tests.acceptance.test_erasure import ERASED, KEPT, WHOSE, Desk, counts, places_of
from tests.cluster.three import Three

pytestmark = pytest.mark.nightly

SETTINGS: Final = LinkSettings(replicas=3)

COMPACTED_S_MAX: Final = 240.0


async def secret_of(three: Three, subject: str) -> str:
    """Return the key of a subject, as servers have it."""
    async with connect_encrypted(three.url, stack=Stack(), settings=SETTINGS) as there:
        key = await there.keys.get(key_name(subject))
    assert key is not None
    return b64encode(key.secret).decode()


async def see_vanish(folder: Path, wanted: str, *, within_s: float) -> None:
    """See no file have some bytes any more, at last."""
    until_s = time.monotonic() + within_s
    while found := places_of(folder, wanted):
        assert time.monotonic() < until_s, found
        await asyncio.sleep(1)


@pytest.mark.timeout(600)
async def test_what_is_erased_is_in_no_file_of_three_servers(three: Three, tmp_path: Path):
    cluster = Cluster(tmp_path, nats_url=three.url)
    async with cluster:
        desk = Desk(cluster, tmp_path, VIGIL_REPLICAS="3")
        async with connect(three.url, stack=Stack(), settings=SETTINGS):
            pass
        await desk.begin()
        desk.fire("123", ERASED)
        desk.fire("456", KEPT)
        await desk.wait_ended(2)
        before = await counts(cluster)
        secret = await secret_of(three, "client_id/123")
        others = await secret_of(three, "client_id/456")
        assert places_of(three.directory, ERASED) == []
        assert len(places_of(three.directory, secret)) >= len(three.servers)

        said = desk.order("erase", *WHOSE, "--yes", "--reason", "asked by mail")

        assert "within three minutes" in said

        for folder in (three.directory, tmp_path):
            assert places_of(folder, ERASED) == []
        # Each server writes the log of its copies anew every two to three minutes.
        await see_vanish(three.directory, secret, within_s=COMPACTED_S_MAX)
        assert places_of(three.directory, others) != []
        assert await counts(cluster) == before
        await desk.see_rebuilt()
        assert [places_of(each, ERASED) for each in (three.directory, tmp_path)] == [[], []]
