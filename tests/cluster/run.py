"""One run on three servers: publish, break nodes and servers meanwhile, and judge every replica."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from engine.archive.run import last_report
from engine.orders.store import give_order
from streams.errors import StreamError, Unavailable
from streams.jetstream import LinkSettings, connect
from streams.layout import AGGREGATE_STREAMS, Kind, Stream
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.acceptance.agreement import lives_on
from tests.acceptance.cluster import Cluster
from tests.chaos import app as chaos_app
from tests.chaos import ledger
from tests.chaos.faults import Fault, plan
from tests.chaos.run import ANSWER_S, Outcome, Run, Size, judged, live, say
from tests.cluster.acknowledged import Acknowledged
from tests.cluster.archived import (
    JOURNAL_S,
    KEPT,
    archive_of,
    as_kept,
    incomplete,
    name_archive,
    read_archive,
    whole,
)
from tests.cluster.faults import PlannedFault, ServerFault, plan_servers
from tests.cluster.replicas import End, Replica, differences, lost, read
from tests.cluster.servers import Server, Servers, three_servers

APP: Final = "tests.cluster.app:app"
REPLICAS: Final = 3
SETTINGS: Final = LinkSettings(replicas=REPLICAS)
MADE_S_MAX: Final = 60.0
FILLER_CHARS: Final = 48 * 1024
FILLER_EVERY_S: Final = 0.05
"""Together a block of the server, of 8 MB, every eight seconds."""

PURGED_DURING_S: Final = JOURNAL_S + 25.0
"""How long things go wrong while the journal is purged of what has ended, in seconds."""

PURGED_S_MAX: Final = JOURNAL_S + 30.0
"""Longest after that until it has nothing more of it, in seconds: a lease may have to lapse."""

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
class _Faults:
    run: Run
    breaking: Breaking
    size: Size
    kinds: Sequence[ServerFault]

    async def happen(self, seed: int, during_s: float, ports: Ports) -> None:
        """Let nodes and servers suffer what is planned from `seed`, while blocks are filled."""
        of_nodes = plan(seed, nodes=self.size.nodes, lease_s=self.size.lease_s, during_s=during_s)
        await asyncio.gather(
            self.run.suffer([each for each in of_nodes if each.fault is not Fault.RESTART]),
            self.breaking.suffer(plan_servers(seed, during_s=during_s, kinds=self.kinds)),
            _fill_blocks(ports, of=seed, during_s=during_s),
        )


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
    """What was acknowledged and is neither on a replica nor in the archive."""
    purged: int
    """Messages of the journal that only the archive has."""
    purged_meanwhile: int
    """What had left the journal when the last fault had passed."""
    kept: str
    """Why the journal still has what ended long ago; empty: it does not."""
    rows_left: int
    """Episodes whose rows have left the tables."""
    incomplete: Sequence[str]
    """What a replica and the archive do not have together, or have twice."""

    def faults(self) -> list[str]:
        """Return all that is wrong."""
        return [
            *self.of_nodes.verdict.faults(),
            *(f"replicas differ: {each}" for each in self.unequal),
            *(f"acknowledged and lost: {each}" for each in self.lost),
            *(f"live and archived: {each}" for each in self.incomplete),
            *([f"not purged: {self.kept}"] if self.kept else []),
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
    archive = archive_of(directory / "archive", stack)
    name_archive(directory / "home", directory / "archive")
    async with AsyncExitStack() as running:
        port = running.enter_context(ledger.running(entries, answer_s=ANSWER_S))
        starting = three_servers(directory / "nats", has_small_disk=ServerFault.FULL in kinds)
        servers = await running.enter_async_context(starting)
        cluster = await running.enter_async_context(
            Cluster(directory, nats_url=servers.url, folder=directory / "home")
        )
        this = Run(cluster, size, _settings(size, ledger_port=port), app=APP)
        breaking = Breaking(servers)
        ours = await servers.connect(acknowledged.tap)
        await _make(ours.url, stack)
        await this.start([await servers.connect(acknowledged.tap) for _ in range(size.nodes)])
        async with connect(ours.url, stack=stack, settings=SETTINGS) as own:
            ports = whole(own, archive)
            await give_order(ports, KEPT)
            supervising = asyncio.create_task(this.supervise())
            faults = _Faults(this, breaking, size, kinds)
            published = await live(ports, size, faults.happen(seed, size.during_s, ports))
            # An episode that is open holds all that came later: most goes when the last has ended.
            await faults.happen(seed + 1, PURGED_DURING_S, ports)
            purged_meanwhile = await _first_seq(ports) - 1
            kept = await _wait_purged(ports)
            supervising.cancel()
            await servers.wait_caught_up()
            outcome = await judged(this, ports, published, entries)
            rows_left = await _rows_left(cluster, ports)
        for member in this.members:
            member.process.kill()
        replicas, end = await _stopped(servers, directory / "alone")
    archived, journal = await read_archive(archive), stack.stream(Stream.JOURNAL)
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
                {**replica, journal: {**as_kept(archived), **replica[journal]}},
                acknowledged.written,
                for_ever=for_ever(stack),
                buckets=buckets(stack),
            )
        ],
        purged=len(archived.keys() - set().union(*(each[journal] for each in replicas.values()))),
        purged_meanwhile=purged_meanwhile,
        kept=kept,
        rows_left=rows_left,
        incomplete=[
            f"{name}: {each}"
            for name, replica in replicas.items()
            for each in incomplete(archived, replica[journal])
        ],
    )


async def _stopped(servers: Servers, scratch: Path) -> tuple[Mapping[str, Replica], End]:
    """Stop the servers once each has all; return what each has, and when they stopped."""
    streams = await servers.wait_caught_up()
    begun = datetime.now(UTC)
    await asyncio.gather(*(server.stop() for server in servers.servers))
    end = End.between(begun, datetime.now(UTC))
    replicas = {
        server.name: await read(server.store, streams, scratch / server.name)
        for server in servers.servers
    }
    return replicas, end


def _settings(size: Size, *, ledger_port: int) -> Mapping[str, str]:
    return {
        "VIGIL_LEASE_S": str(size.lease_s),
        "VIGIL_REPLICAS": str(REPLICAS),
        chaos_app.LEDGER: str(ledger_port),
    }


async def _wait_purged(ports: Ports) -> str:
    """Wait until all that ended is in the archive alone; return what keeps it in the journal."""
    head, until_s = await ports.log.head(), time.monotonic() + PURGED_S_MAX
    while time.monotonic() < until_s:
        if await _first_seq(ports) > head:
            return ""
        await asyncio.sleep(POLL_S)
    report = await last_report(ports)
    return report.parts[0].floor.words if report is not None else "nothing was ever archived"


async def _first_seq(ports: Ports) -> int:
    """Return where the journal begins; servers that are away are asked again."""
    while True:
        with suppress(Unavailable):
            state = await ports.states.of(Stream.JOURNAL.value)
            assert state is not None, "nobody has deleted it"
            return state.first_seq
        await asyncio.sleep(POLL_S)


async def _rows_left(cluster: Cluster, ports: Ports) -> int:
    """Return how many episodes the log has that the tables do not have any more."""
    lives = await lives_on(ports)
    (count,) = await cluster.query("select count(*) as there from episodes")
    return sum(kind is Kind.EPISODE for kind, _ in lives) - int(count["there"])


async def _fill_blocks(ports: Ports, *, of: int, during_s: float) -> None:
    """Publish what nobody listens to, so much that the servers begin new blocks meanwhile.

    What they lose by how they store a whole block, episodes alone would take an hour to show.
    """
    text, begun_s = "x" * FILLER_CHARS, time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(during_s / FILLER_EVERY_S)):
            await asyncio.sleep(max(0.0, begun_s + number * FILLER_EVERY_S - time.monotonic()))
            filler = ports.domain_events.publish(
                "filler", {"text": text}, id=f"filler{of}.{number}"
            )
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
    """Return the streams from which nothing goes while a run lasts, but into the archive."""
    streams = (Stream.EVENTS, Stream.DEAD, *AGGREGATE_STREAMS)
    return [stack.stream(stream) for stream in streams]


def buckets(stack: Stack) -> list[str]:
    """Return the streams of the stack's buckets."""
    names = (stack.claims_bucket(), stack.registry_bucket(), stack.gates_bucket())
    return [f"KV_{name}" for name in names]
