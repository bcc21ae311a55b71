"""Three servers in one cluster whose routes, clients and disks a test can break.

Each server reaches each other one through a wire of its own, and clients are told no addresses but
those that they were given, so nobody finds a way round a wire. The last server has a small disk.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nats
from nats.errors import Error as NatsError

from bench.three import SERVERS, STARTS_TRIED_MAX, free_ports, wait_ready
from streams.embedded import EmbeddedNats
from streams.errors import Unavailable
from tests.cluster.disk import SmallDisk, small_disk
from tests.streams.jetstream.wire import Tap, Wire, Wires

DISK_MEGABYTES: Final = 512
"""Of the last server; a run stores less than a tenth of it."""

NOBODYS_PORT: Final = 1
"""What servers tell each other about where they are: nobody listens there, so the configured routes
are the only ones."""

CAUGHT_UP_S_MAX: Final = 120.0
POLL_S: Final = 0.5

CONFIG: Final = """\
server_name: {name}
cluster {{
  name: chaos
  listen: "127.0.0.1:{port}"
  advertise: "127.0.0.1:{nobodys_port}"
  no_advertise: true
  routes: [{routes}]
}}
"""

SMALL_STORE: Final = """\
jetstream {{ store_dir: {store_dir}, sync_interval: always, max_file: 1TB }}
"""


@dataclass
class Server:
    """One of them."""

    name: str
    nats: EmbeddedNats
    store: Path
    routes: Wires
    """To the others and from them."""
    disk: SmallDisk | None = None

    async def restart(self) -> None:
        """Start it, after stopping it in order if it runs."""
        await asyncio.to_thread(self.nats.restart)

    async def stop(self) -> None:
        await asyncio.to_thread(self.nats.stop)


class Servers:
    """The cluster, and who is connected to it."""

    def __init__(self, servers: Sequence[Server], running: AsyncExitStack) -> None:
        self.servers = servers
        self._running = running
        self._clients: list[Sequence[Wire]] = []

    @property
    def url(self) -> str:
        """All of them, without wires."""
        return ",".join(server.nats.url for server in self.servers)

    async def connect(self, tap: Callable[[], Tap]) -> Wires:
        """Return wires to all servers for one more client, on which `tap` listens in."""
        wires = [
            await self._running.enter_async_context(Wire(server.nats.url, tap=tap))
            for server in self.servers
        ]
        self._clients.append(wires)
        return Wires(wires)

    def clients_of(self, number: int) -> Wires:
        """Return the wires of all clients to one server."""
        return Wires([wires[number] for wires in self._clients])

    async def wait_caught_up(self) -> list[str]:
        """Wait until every replica of every stream has all of it; return the streams' names.

        Raises:
            AssertionError: that took longer than `CAUGHT_UP_S_MAX`; it says what is behind.
        """
        until_s = time.monotonic() + CAUGHT_UP_S_MAX
        behind: object = "nobody was asked"
        while time.monotonic() < until_s:
            with suppress(NatsError, TimeoutError):
                streams = await self._streams()
                behind = [_behind(each) for each in streams if _behind(each)]
                if not behind:
                    return [each["config"]["name"] for each in streams]
            await asyncio.sleep(POLL_S)
        raise AssertionError(f"not caught up: {behind}")

    async def _streams(self) -> list[dict[str, Any]]:
        client = await nats.connect(self.url.split(","), max_reconnect_attempts=1)
        try:
            found = json.loads((await client.request("$JS.API.STREAM.NAMES", timeout=2)).data)
            return [
                json.loads((await client.request(f"$JS.API.STREAM.INFO.{name}", timeout=2)).data)
                for name in found["streams"]
            ]
        finally:
            await client.close()


def _behind(stream: dict[str, Any]) -> str:
    """Return what one stream lacks, by its leader; empty if it lacks nothing."""
    if "error" in stream:
        return str(stream["error"])
    cluster = stream["cluster"]
    name = stream["config"]["name"]
    if not cluster.get("leader") or len(cluster.get("replicas", ())) != SERVERS - 1:
        return f"{name}: {cluster}"
    behind = [
        each
        for each in cluster["replicas"]
        if not each.get("current") or each.get("offline") or each.get("lag")
    ]
    return f"{name}: {behind}" if behind else ""


@asynccontextmanager
async def three_servers(place: Path, *, has_small_disk: bool) -> AsyncIterator[Servers]:
    """Start three servers below `place`, and yield them once they have a leader."""
    async with AsyncExitStack() as running:
        disk = None
        if has_small_disk:
            disk = running.enter_context(small_disk(place / "disk", megabytes=DISK_MEGABYTES))
        servers = await _started(running, place, disk)
        await wait_ready([server.nats for server in servers])
        yield Servers(servers, running)


async def _started(
    running: AsyncExitStack, place: Path, disk: SmallDisk | None
) -> Sequence[Server]:
    for attempt in range(1, STARTS_TRIED_MAX + 1):
        try:
            async with AsyncExitStack() as starting:
                servers = await _servers(starting, place / str(attempt), disk)
                for server in servers:
                    starting.enter_context(server.nats)
                running.push_async_exit(starting.pop_all())
                return servers
        except Unavailable:  # A port that was free when we looked is taken by now.
            if attempt == STARTS_TRIED_MAX:
                raise
    raise AssertionError("unreachable")


async def _servers(
    starting: AsyncExitStack, place: Path, disk: SmallDisk | None
) -> Sequence[Server]:
    """Return the servers, not yet started, with their wires to each other."""
    ports = free_ports(SERVERS)
    routes = {
        (near, far): await starting.enter_async_context(Wire(f"nats://127.0.0.1:{ports[far]}"))
        for near in range(SERVERS)
        for far in range(SERVERS)
        if near != far
    }
    servers = []
    for number, port in enumerate(ports):
        own = [wire for ends, wire in routes.items() if number in ends]
        there = [wire.url for (near, _), wire in routes.items() if near == number]
        name = f"s{number + 1}"
        config = CONFIG.format(
            name=name,
            port=port,
            nobodys_port=NOBODYS_PORT,
            routes=", ".join(f'"{url}"' for url in there),
        )
        directory, is_small = place / name, disk is not None and number == SERVERS - 1
        store = directory.resolve() / "store"
        if is_small and disk is not None:
            store = disk.path / "store"
            config += SMALL_STORE.format(store_dir=json.dumps(str(store)))
        servers.append(
            Server(
                name,
                EmbeddedNats(directory, extra_config=config),
                store,
                Wires(own),
                disk if is_small else None,
            )
        )
    return servers
