"""A single server that is killed: what was removed stays removed.

Such a server reads its messages again when it starts. A key's value is then back if what removed it
has gone by itself (nats-server up to 2.15.1).
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import stored
from streams.jetstream.ports.bucket import JetStreamBucket
from streams.jetstream.ports.configs import bucket_stream, key_subject
from tests.contracts.samples import next_of

KEY = "cooldown.monitor.disk.web-1"
CLOCK_KEY = "node.n1"
SHORT_S = 1
"""The shortest time to live that there is."""

LONG_S = 3600


@asynccontextmanager
async def bucket_on(server, stack, *, marker_s):
    async with Link(server.url, LinkSettings()) as link:
        yield JetStreamBucket(link, stack.gates_bucket(), marker_s=marker_s)


async def test_a_deleted_key_is_gone_for_as_long_as_its_value_would_have_lived(
    ports, own_nats, stack
):
    async with bucket_on(own_nats, stack, marker_s=SHORT_S) as bucket:
        await bucket.put(KEY, b"e1", ttl_s=LONG_S)
        await bucket.delete(KEY)
        async with bucket.watch(under="node") as watch:
            await bucket.put(CLOCK_KEY, b"", ttl_s=2 * SHORT_S)
            await next_of(watch, 2)  # It is put, and lapses: a tombstone of 1 s would be gone.
    own_nats.kill()
    own_nats.restart()

    async with bucket_on(own_nats, stack, marker_s=SHORT_S) as bucket:
        assert await bucket.get(KEY) is None


@pytest.mark.parametrize("ttl_s", [None, LONG_S])
async def test_a_setting_that_was_deleted_leaves_a_tombstone_that_outlives_it(
    ports, own_nats, stack, ttl_s
):
    await ports.registry.put("pause.monitor", b"{}", ttl_s=ttl_s)
    await ports.registry.delete("pause.monitor")

    name = stack.registry_bucket()
    async with Link(own_nats.url, LinkSettings()) as link:
        subject = key_subject(name, "pause.monitor")
        found = await stored.last(link, bucket_stream(name), subject)
    assert found is not None
    assert found.headers[headers.KV_OPERATION] == "PURGE"
    assert found.headers.get(headers.TTL) == (None if ttl_s is None else f"{LONG_S}s")
