"""One run on three servers: publish, break nodes and servers meanwhile, and judge every replica."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from streams.errors import StreamError
from streams.jetstream import LinkSettings, connect
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster
from tests.chaos import app as chaos_app
from tests.chaos import ledger
from tests.chaos.faults import Fault, plan
from tests.chaos.run import ANSWER_S, Outcome, Run, Size, judged, live, say
from tests.cluster.acknowledged import Acknowledged
from tests.cluster.faults import PlannedFault, ServerFault, plan_servers
from tests.cluster.replicas import End, differences, lost, read
from tests.cluster.servers import Server, Servers, three_servers

REPLICAS: Final = 3
SETTINGS: Final = LinkSettings(replicas=REPLICAS)
MADE_S_MAX: Final = 60.0
FILLER_CHARS: Final = 48 * 1024
FILLER_EVERY_S: Final = 0.05
"""Together a block of the server, of 8 MB, every eight seconds."""

POLL_S: Final = 0.5


@dataclass
class Breaking:
    """The servers, and what has gone wrong with them so far."""

    servers: Servers
    happened: Counter[ServerFault] = field(default_factory=Counter)

    async def suffer(self, planned: Sequence[PlannedFault]) -> None:
        """Let everything that is planned go wrong, one after the other."""
        for each in planned:
            await asyncio.sleep(each.after_s)
            say(f"  {each.fault} {self._server(each.server).name} for {each.for_s:.1f} s")
            await self._happen(each)
            self.happened[each.fault] += 1

    async def _happen(self, planned: PlannedFault) -> None:
        server = self._server(planned.server)
        clients = self.servers.clients_of(planned.server)
        match planned.fault:
            case ServerFault.KILLED:
                await self._killed([server], planned.for_s)
            case ServerFault.TWO:
                await self._killed([server, self._server(planned.other)], planned.for_s)
            case ServerFault.FROZEN:
                server.nats.pause()
                await asyncio.sleep(planned.for_s)
                server.nats.unpause()
            case ServerFault.SPLIT:
                server.routes.block()
                await asyncio.sleep(planned.for_s)
                server.routes.unblock()
            case ServerFault.SILENT:
                server.routes.hold()
                await asyncio.sleep(planned.for_s)
                server.routes.let_go()
            case ServerFault.CUT:
                for wires in (server.routes, clients):
                    wires.block()
                await asyncio.sleep(planned.for_s)
                for wires in (server.routes, clients):
                    wires.unblock()
            case ServerFault.FULL:
                assert server.disk is not None
                await asyncio.to_thread(server.disk.fill)
                await asyncio.sleep(planned.for_s)
                server.disk.empty()
                await server.restart()  # A server that ran out of room has given up JetStream.

    async def _killed(self, servers: Sequence[Server], for_s: float) -> None:
        for server in servers:
            server.nats.kill()
        await asyncio.sleep(for_s)
        await asyncio.gather(*(server.restart() for server in servers))

    def _server(self, number: int) -> Server:
        return self.servers.servers[number]


@dataclass(frozen=True)
class ClusterOutcome:
    """What became of one run."""

    of_nodes: Outcome
    happened: Counter[ServerFault]
    acknowledged: int
    """Messages whose acknowledgement reached a client."""
    compared: int
    """Messages that were compared on all servers."""
    unequal: Sequence[str]
    """Streams whose replicas differ."""
    lost: Sequence[str]
    """What was acknowledged and is not on a replica."""

    def faults(self) -> list[str]:
        """Return all that is wrong."""
        return [
            *self.of_nodes.verdict.faults(),
            *(f"replicas differ: {each}" for each in self.unequal),
            *(f"acknowledged and lost: {each}" for each in self.lost),
        ]


async def run(
    directory: Path,
    size: Size,
    *,
    seed: int,
    kinds: Sequence[ServerFault] = tuple(ServerFault),
) -> ClusterOutcome:
    """Run once, with what goes wrong planned from `seed`; servers suffer only `kinds`."""
    entries, stack, acknowledged = directory / "ledger", Stack(), Acknowledged()
    async with AsyncExitStack() as running:
        port = running.enter_context(ledger.running(entries, answer_s=ANSWER_S))
        starting = three_servers(directory / "nats", has_small_disk=ServerFault.FULL in kinds)
        servers = await running.enter_async_context(starting)
        cluster = await running.enter_async_context(Cluster(directory, nats_url=servers.url))
        settings = {
            "VIGIL_LEASE_S": str(size.lease_s),
            "VIGIL_REPLICAS": str(REPLICAS),
            chaos_app.LEDGER: str(port),
        }
        this, breaking = Run(cluster, size, settings), Breaking(servers)
        ours = await servers.connect(acknowledged.tap)
        await _make(ours.url, stack)
        await this.start([await servers.connect(acknowledged.tap) for _ in range(size.nodes)])
        async with connect(ours.url, stack=stack, settings=SETTINGS) as ports:
            planned = plan(seed, nodes=size.nodes, lease_s=size.lease_s, during_s=size.during_s)
            of_nodes = [each for each in planned if each.fault is not Fault.RESTART]
            of_servers = plan_servers(seed, during_s=size.during_s, kinds=kinds)

            async def suffering() -> None:
                await asyncio.gather(
                    this.suffer(of_nodes),
                    breaking.suffer(of_servers),
                    _fill_blocks(ports, during_s=size.during_s),
                )

            supervising = asyncio.create_task(this.supervise())
            published = await live(ports, size, suffering())
            supervising.cancel()
            outcome = await judged(this, ports, published, entries)
        for member in this.members:
            member.process.kill()
        streams = await servers.wait_caught_up()
        stopping_at = datetime.now(UTC)
        await asyncio.gather(*(server.stop() for server in servers.servers))
        end = End.between(stopping_at, datetime.now(UTC))
        replicas = {
            server.name: await read(server.store, streams, directory / "alone" / server.name)
            for server in servers.servers
        }
    return ClusterOutcome(
        of_nodes=outcome,
        happened=breaking.happened,
        acknowledged=len(acknowledged),
        compared=sum(map(len, next(iter(replicas.values())).values())),
        unequal=list(differences(replicas, end)),
        lost=[
            f"{name}: {each}"
            for name, replica in replicas.items()
            for each in lost(
                replica, acknowledged.written, for_ever=for_ever(stack), buckets=buckets(stack)
            )
        ],
    )


async def _fill_blocks(ports: Ports, *, during_s: float) -> None:
    """Publish what nobody listens to, so much that the servers begin new blocks meanwhile.

    What they lose by how they store a whole block, episodes alone would take an hour to show.
    """
    text, begun_s = "x" * FILLER_CHARS, time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(during_s / FILLER_EVERY_S)):
            await asyncio.sleep(max(0.0, begun_s + number * FILLER_EVERY_S - time.monotonic()))
            filler = ports.domain_events.publish("filler", {"text": text}, id=f"filler{number}")
            group.create_task(filler)


async def _make(url: str, stack: Stack) -> None:
    """Make the streams once the servers know each other: until then three copies have no place."""
    until_s = time.monotonic() + MADE_S_MAX
    while True:
        try:
            async with connect(url, stack=stack, settings=SETTINGS):
                return
        except StreamError:
            if time.monotonic() > until_s:
                raise
        await asyncio.sleep(POLL_S)


def for_ever(stack: Stack) -> list[str]:
    """Return the streams from which nothing goes while a run lasts."""
    streams = (Stream.EVENTS, Stream.DEAD, *AGGREGATE_STREAMS)
    return [stack.stream(stream) for stream in streams]


def buckets(stack: Stack) -> list[str]:
    """Return the streams of the stack's buckets."""
    names = (stack.claims_bucket(), stack.registry_bucket(), stack.gates_bucket())
    return [f"KV_{name}" for name in names]
