"""Three NATS servers on this machine that are one JetStream cluster."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import nats
from nats.errors import Error as NatsError

from streams.embedded import EmbeddedNats
from streams.errors import Unavailable

SERVERS: Final = 3

STARTS_TRIED_MAX: Final = 5
"""A start fails when a port that was free when we looked is taken by now."""

READY_S_MAX: Final = 30.0
"""Longest until the servers have elected who leads, in seconds. Measured: 1 to 5 s."""

POLL_S: Final = 0.1

CONFIG: Final = """\
server_name: {name}
cluster {{ name: bench, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""


@asynccontextmanager
async def three(place: Path, *, sync: str) -> AsyncIterator[Sequence[EmbeddedNats]]:
    """Start the servers in folders below `place`, and yield them once they have a leader."""
    with ExitStack() as running:
        servers = _started(running, place, sync)
        await wait_ready(servers)
        yield servers


def _started(running: ExitStack, place: Path, sync: str) -> Sequence[EmbeddedNats]:
    for attempt in range(1, STARTS_TRIED_MAX + 1):
        servers = _servers(place / str(attempt), sync)
        try:
            with ExitStack() as starting:
                for server in servers:
                    starting.enter_context(server)
                running.push(starting.pop_all())
                break
        except Unavailable:
            if attempt == STARTS_TRIED_MAX:
                raise
    return servers


def _servers(place: Path, sync: str) -> Sequence[EmbeddedNats]:
    ports = free_ports(SERVERS)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    return [
        EmbeddedNats(
            place / f"s{number}",
            sync=sync,
            extra_config=CONFIG.format(name=f"s{number}", port=port, routes=routes),
        )
        for number, port in enumerate(ports, start=1)
    ]


async def wait_ready(servers: Sequence[EmbeddedNats]) -> None:
    """Wait until each of `servers` knows a leader."""
    deadline_s = time.monotonic() + READY_S_MAX
    for server in servers:
        while not await _has_leader(server):
            assert time.monotonic() < deadline_s, "the servers elect no leader"
            await asyncio.sleep(POLL_S)


async def _has_leader(server: EmbeddedNats) -> bool:
    """Return whether `server` can say what JetStream holds, which needs a leader."""
    client = await nats.connect(server.url, max_reconnect_attempts=1)
    try:
        await client.jetstream(timeout=1.0).account_info()
    except NatsError:
        return False
    finally:
        await client.close()
    return True


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all held until the last one was found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
