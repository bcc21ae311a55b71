"""I4 and I5 when the server's store is full: nothing is stored, nothing crashes, all can go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.errors import ServiceUnavailableError

from streams.embedded import EmbeddedNats
from streams.model.events import EndStatus
from tests.acceptance.cluster import wait_until
from tests.chaos.stage import WAIT_S_MAX, opened

pytestmark = pytest.mark.nightly

STORE_BYTES_MAX: Final = 4_000_000
FILLER: Final = "filler"
ANSWER_S: Final = 1.0
"""Time enough to fill the store in the middle of a call."""


async def test_an_episode_ends_when_there_is_room_again(tmp_path: Path):
    with EmbeddedNats(tmp_path / "small", store_max=STORE_BYTES_MAX) as server:
        async with (
            opened(tmp_path, answer_s=ANSWER_S, nats_url=server.url, VIGIL_LEASE_S="1") as stage,
            _filler(server.url) as stream,
        ):
            node = await stage.start("n1")
            await stage.publish("settle")
            await stage.wait_called()
            await _fill(stream)
            await wait_until(lambda: node.says("claim_lost"), "claim_lost", most_s=WAIT_S_MAX)
            await stream.purge_stream(FILLER)

            assert (await stage.wait_finished()).status is EndStatus.DONE
            assert len({call.key for call in stage.calls()}) == 1
            assert "Traceback" not in node.logged()
            assert node.stop() == 0


@asynccontextmanager
async def _filler(url: str) -> AsyncIterator[JetStreamContext]:
    """Yield a client with a stream of somebody else's on the same server."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=FILLER, subjects=[FILLER])
        yield stream
    finally:
        await client.close()


async def _fill(stream: JetStreamContext) -> None:
    """Publish until the server has no room for one byte more."""
    for size_bytes in (100_000, 1_000, 1):
        with pytest.raises(ServiceUnavailableError):
            await _publish(stream, size_bytes, most=STORE_BYTES_MAX // size_bytes + 1)


async def _publish(stream: JetStreamContext, size_bytes: int, *, most: int) -> None:
    for _ in range(most):
        await stream.publish(FILLER, b"x" * size_bytes)
