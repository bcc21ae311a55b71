"""Three nats-server processes on the loopback interface that are one JetStream cluster."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import nats
from nats.errors import Error as NatsError
from nats.js.api import StreamInfo

from streams.embedded import EmbeddedNats
from streams.errors import Unavailable

SERVERS: Final = 3
STARTS_TRIED_MAX: Final = 5
"""A start fails when a port that was free when we looked is taken by now."""

READY_S_MAX: Final = 30.0
"""Longest until the servers have elected who leads. Measured: 1 to 5 s."""

POLL_S: Final = 0.1

CONFIG: Final = """\
server_name: {name}
cluster {{ name: three, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""


class Three:
    """The servers by name. Entering starts them and waits for a leader."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running = ExitStack()
        self.servers: dict[str, EmbeddedNats] = {}

    @property
    def url(self) -> str:
        """All of them, for a client."""
        return ",".join(server.url for server in self.servers.values())

    async def __aenter__(self) -> Self:
        for attempt in range(1, STARTS_TRIED_MAX + 1):
            try:
                self._start(self._directory / str(attempt))
                break
            except Unavailable:
                self._running.close()
                if attempt == STARTS_TRIED_MAX:
                    raise
        await self._wait_ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.close()

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

    def _start(self, directory: Path) -> None:
        ports = _free_ports(SERVERS)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = {
            f"s{port}": EmbeddedNats(
                directory / f"s{port}",
                extra_config=CONFIG.format(name=f"s{port}", port=port, routes=routes),
            )
            for port in ports
        }
        for server in self.servers.values():
            self._running.enter_context(server)

    async def _wait_ready(self) -> None:
        deadline_s = time.monotonic() + READY_S_MAX
        while not await self._is_ready():
            assert time.monotonic() < deadline_s, "the servers elect no leader"
            await asyncio.sleep(POLL_S)

    async def _is_ready(self) -> bool:
        """Return whether each server can say what JetStream holds, which needs a leader."""
        for server in self.servers.values():
            client = await nats.connect(server.url, max_reconnect_attempts=1)
            try:
                await client.jetstream(timeout=1.0).account_info()
            except NatsError:
                return False
            finally:
                await client.close()
        return True


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all held until the last one was found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
