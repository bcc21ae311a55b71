"""Vigil as a system under measurement: servers that sync every message, Postgres, nodes, a load.

Everything is a process of its own: `vigil node` as operators run it, projecting; and the load
(`bench/load.py`), which knows nothing but NATS. A run is over when its episodes have ended *and*
their rows are in Postgres.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil

from bench.filling import fill
from bench.measure import CLIENT, Run
from bench.node import node
from bench.program import Program, Request
from bench.three import three
from engine.reactor.position import Position
from projections.embedded import EmbeddedPostgres
from projections.postgres.pool import Pool, open_pool
from projections.postgres.progress import caught_up, heads
from streams.embedded import EmbeddedNats
from streams.jetstream import LinkSettings, connect
from streams.layout import Stream
from streams.ports.all import Ports
from streams.subjects import Stack

SYNC: Final = "always"
STACK: Final = Stack("bench")
APP: Final = "bench.app:app"
NAME: Final = "VIGIL_NODE"

ROWS_S_MAX: Final = 120.0
"""Longest wait for rows after the last episode of a run has ended, in seconds."""

RETAINED_S_MAX: Final = 1_800.0
"""Longest wait for the rows of a history, in seconds: 3 million commits at 2,000 a second."""

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Vigil:
    """A stack that runs."""

    name: str
    url: str
    dsn: str
    ports: Ports
    pool: Pool
    load: Program
    servers: Sequence[EmbeddedNats]
    node_pids: Sequence[int]
    parts: Mapping[str, Sequence[int]]
    sync: str = f"NATS: sync_interval {SYNC}"

    async def run(self, request: Request) -> Run:
        """Run a case once, until the rows of its episodes can be queried."""
        before = await self._commits()
        answer = await self.load.ask(request)
        await self.wait_rows(ROWS_S_MAX)
        over_s = time.monotonic()
        commits = await self._commits() - before
        return replace(answer.run(until_s=over_s), commits=commits)

    async def wait_rows(self, timeout_s: float) -> None:
        """Wait until all that is on the journal now is in Postgres."""
        newest = await heads(self.ports)
        await caught_up(self.pool, self.ports.stack, newest, timeout_s=timeout_s)

    async def _commits(self) -> int:
        return sum((await heads(self.ports)).values())

    def server_mib(self) -> float:
        """Return what the NATS servers have in memory."""
        return sum(psutil.Process(server.pid).memory_info().rss for server in self.servers) / MIB

    def node_mib(self) -> float:
        """Return what the nodes have in memory."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self.node_pids) / MIB


@asynccontextmanager
async def vigil(
    place: Path,
    *,
    cases: Sequence[str],
    name: str = "vigil",
    app: str = APP,
    nodes: int = 1,
    replicas: int = 1,
    retained: int = 0,
) -> AsyncIterator[Vigil]:
    """Start a stack in the folder `place`, and yield it once `cases` can be run on it.

    Args:
        place: where its servers keep what they store.
        cases: events of the app that must be heard.
        name: what results call it.
        app: what its nodes run.
        nodes: how many node processes.
        replicas: 1 for one NATS server, 3 for a cluster of three.
        retained: how many episodes, with their rows, there are that ended long before.
    """
    async with AsyncExitStack() as running:
        servers = await _nats(running, place, replicas)
        url = ",".join(server.url for server in servers)
        postgres = running.enter_context(EmbeddedPostgres(place / "postgres"))
        settings = LinkSettings(replicas=replicas)
        ports = await running.enter_async_context(connect(url, stack=STACK, settings=settings))
        if retained:
            await fill(url, STACK, episodes=retained)
            await _publish_none(ports)
        said = {"VIGIL_REPLICAS": str(replicas)}
        pids = [
            running.enter_context(
                node(url, postgres.dsn, app=app, stack=STACK.name, settings={**said, NAME: f"n{n}"})
            )
            for n in range(1, nodes + 1)
        ]
        pool = await running.enter_async_context(open_pool(postgres.dsn))
        await caught_up(pool, STACK, await heads(ports), timeout_s=RETAINED_S_MAX)
        command = [sys.executable, "-m", "bench.load", url, STACK.name, *cases]
        load = await running.enter_async_context(Program(command))
        parts = {
            "node": pids,
            "nats": [server.pid for server in servers],
            "postgres": [postgres.pid],
            CLIENT: [load.pid],
        }
        yield Vigil(name, url, postgres.dsn, ports, pool, load, servers, pids, parts)


async def _publish_none(ports: Ports) -> None:
    """Have the reactor begin at the end of the journal: what follows from it is long past."""
    for part, head in (await heads(ports, [Stream.JOURNAL])).items():
        position = await Position.read(ports, part)
        position.seq = head
        await position.write(time.monotonic())


async def _nats(running: AsyncExitStack, place: Path, replicas: int) -> Sequence[EmbeddedNats]:
    if replicas > 1:
        return await running.enter_async_context(three(place / "nats", sync=SYNC))
    return [running.enter_context(EmbeddedNats(place / "nats", sync=SYNC))]
