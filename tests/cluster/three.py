"""Three nats-server processes on the loopback interface that are one JetStream cluster."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import nats
from nats.js.api import StreamInfo

from bench.three import three
from streams.embedded import EmbeddedNats


class Three:
    """The servers by name. Entering starts them and waits for a leader."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running = AsyncExitStack()
        self.servers: dict[str, EmbeddedNats] = {}

    @property
    def url(self) -> str:
        """All of them, for a client."""
        return ",".join(server.url for server in self.servers.values())

    async def __aenter__(self) -> Self:
        servers = await self._running.enter_async_context(three(self.directory, sync="always"))
        self.servers = {f"s{number}": server for number, server in enumerate(servers, start=1)}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def stream(self, name: str) -> StreamInfo:
        """Return how a stream is, as its leader says.

        Raises:
            NatsError: it has no leader now.
        """
        client = await nats.connect(self.url.split(","), max_reconnect_attempts=1)
        try:
            return await client.jetstream().stream_info(name)
        finally:
            await client.close()

    async def leader_of(self, stream: str) -> EmbeddedNats:
        """Return the server that leads `stream`."""
        cluster = (await self.stream(stream)).cluster
        assert cluster is not None
        assert cluster.leader is not None
        return self.servers[cluster.leader]
