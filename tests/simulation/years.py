"""Worlds that last for days: a storm a day, in which what is old is archived, purged and cut off.

Between two storms nothing runs. Nodes do what they do about retention by themselves; only how long
they wait between two looks is shorter, as days here have some minutes in which anybody is up.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from engine.archive import purge
from engine.archive.run import ArchivePlan, KnownRows, archive_once, last_report
from engine.orders.store import give_order
from engine.retention import worker
from engine.retention.step import RetentionRun, RetentionStep, StepReport
from streams.archive.archive import Archive
from streams.archive.memory import MemoryArchive
from streams.archive.segment import SegmentLimits
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.memory.stream import MemoryStream
from streams.model.events import RetentionDeclared
from streams.model.retention import RetentionField
from streams.ports.log import Recorded
from streams.ports.states import RawMessage
from streams.wire.messages import parse_commit
from tests.simulation import rest
from tests.simulation.life import Life
from tests.simulation.themes import Programme
from tests.simulation.time import SimClock, simulate
from tests.simulation.wire import Servers, Wire, wired
from tests.simulation.world import NODES, STORM_S, History, World, chance_of, told
from vigil.testing.idle import done

DAY_S: Final = 86_400.0
HOT_DAYS: Final = 8
"""How long the journal keeps what has ended: longer than events last, which is 7 days."""

ROWS_DAYS: Final = 5

KEPT: Final = RetentionDeclared(
    kept_s={
        RetentionField.JOURNAL.value: int(HOT_DAYS * DAY_S),
        RetentionField.DONE.value: int(ROWS_DAYS * DAY_S),
    },
    by="sim",
)

ARCHIVED_EVERY_S: Final = 20 * 3_600.0
LOOK_S: Final = 4.0
RUN_EVERY_S: Final = 8.0
ARCHIVED_S_MAX: Final = 240.0
"""Longest from the end of a storm until what is old is archived, in seconds."""

SMALL: Final = SegmentLimits(messages_max=40, block_bytes=2_000)
SLICE: Final = 10
"""Messages of a purge: so few that there are several, and crashes between them."""


@dataclass
class WiredArchive:
    """See `streams.ports.archive.ArchiveStore`."""

    wire: Wire
    store: MemoryArchive

    @property
    def address(self) -> str:
        return self.store.address

    async def create(self, name: str, data: bytes) -> bool:
        return await self.wire.request(
            f"archive {name}", lambda: done(self.store.create(name, data))
        )

    async def read(self, name: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        return await self.wire.request(
            f"read {name}", lambda: done(self.store.read(name, start=start, length=length))
        )

    async def names(self, under: str) -> Sequence[str]:
        return await self.wire.request("list the archive", lambda: done(self.store.names(under)))


@dataclass(frozen=True)
class ArchivesDaily:
    """The step of retention of one process, as a node with an archive in its settings has it."""

    wire: Wire
    store: MemoryArchive
    rows: Mapping[str, int]
    """Up to where the tables know each stream: the same object all the time."""

    name = "journal"

    async def run(self, run: RetentionRun) -> StepReport:
        """See `RetentionStep.run`."""
        kept_s = run.state.times.of(RetentionField.JOURNAL)
        assert kept_s is not None, "it was ordered before anybody was up"
        last = await last_report(run.ports)
        if last is not None and (run.now - last.at).total_seconds() < ARCHIVED_EVERY_S:
            return StepReport(step=self.name)
        stack = run.ports.stack
        parts = [stack.part(Stream.JOURNAL, each) for each in stack.partitions_of(Stream.JOURNAL)]
        await archive_once(
            run.ports,
            Archive(WiredArchive(self.wire, self.store), stack),
            ArchivePlan(hot_s=float(kept_s), limits=SMALL),
            rows=KnownRows(positions={part: self.rows.get(part, 0) for part in parts}),
            node=run.by,
            clock=run.clock,
        )
        return StepReport(step=self.name)


@dataclass
class Years(World):
    """A world of so many days."""

    days: int = 1
    store: MemoryArchive = field(default_factory=MemoryArchive)
    sizes: list[int] = field(default_factory=list)
    """How many messages the journal had at the end of each day."""

    async def run(self) -> History:
        """Let it happen, and return what did, with what was archived."""
        with told() as surprises, chance_of(self.seed), hurried():
            self._open_queues()
            self.weather.clear_up()
            person = wired(Life("person", is_mortal=False), self.servers)
            await give_order(person, KEPT, clock=SimClock())
            while len(self.sizes) < self.days:
                await self._pass_day()
            # Nobody is up who would see that the lease of a run has lapsed which was cut off.
            await self.servers.ports.leases.reclaim_expired()
            history, past = self._history(surprises), await whole(self.servers, self.store)
        return dataclasses.replace(history, journal=past)

    async def _pass_day(self) -> None:
        loop = asyncio.get_running_loop()
        tomorrow_s = loop.time() + DAY_S
        self.servers.trace.clear()
        self.weather.gather()
        slots = [asyncio.create_task(self._slot(name)) for name in NODES]
        await asyncio.gather(self._publish_all(), asyncio.sleep(STORM_S))
        self.weather.clear_up()
        await self._wait_settled()
        await self._wait_archived(since_s=tomorrow_s - DAY_S)
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)
        self.sizes.append(sum(each.messages for each in journals(self.servers)))
        await asyncio.sleep(tomorrow_s - loop.time())

    async def _wait_archived(self, *, since_s: float) -> None:
        """Wait until what is old was archived today; a lease may have to lapse."""
        for _ in range(int(ARCHIVED_S_MAX / LOOK_S)):
            last = await last_report(self.servers.ports)
            if last is not None and rest.seconds(last.at) >= since_s - LOOK_S:
                return
            await asyncio.sleep(LOOK_S)

    def _event(self, number: int) -> tuple[str, bytes, dict[str, str]]:
        name, data, headers = super()._event(number)
        return name, data, {header: f"d{len(self.sizes)}.{id_}" for header, id_ in headers.items()}

    def _programme(self) -> Programme:
        return Programme()

    def _lets_go(self, life: Life) -> Sequence[RetentionStep]:
        step = ArchivesDaily(Wire(life, self.servers), self.store, self.rows.checkpoints)
        return (*worker.STEPS, step)


@contextmanager
def hurried() -> Iterator[None]:
    """Have nodes look often, and purge little at a time."""
    with ExitStack() as patched:
        for module, name, value in (
            (worker, "LOOK_S", LOOK_S),
            (worker, "EVERY_S", RUN_EVERY_S),
            (purge, "SLICE_MIN", SLICE),
        ):
            patched.enter_context(patch.object(module, name, value))
        yield


def journals(servers: Servers) -> Sequence[MemoryStream]:
    """Return the partitions of the journal."""
    stack, states = servers.ports.stack, servers.ports.states
    parts = [stack.part(Stream.JOURNAL, each) for each in stack.partitions_of(Stream.JOURNAL)]
    return [states.stream(part) for part in parts]


async def whole(servers: Servers, store: MemoryArchive) -> Sequence[Recorded]:
    """Return what archive and servers have of journal and state, in the order in which it was.

    Raises `AssertionError` if the archive has something twice.
    """
    stack = servers.ports.stack
    archived: dict[tuple[str, int], Recorded] = {}
    for message in await _segments(Archive(store, stack)):
        place = message.subject, message.seq
        assert place not in archived, f"{place} is archived twice"
        archived[place] = parse_commit(message)
    live = {(each.subject, each.seq): each for each in rest.stored(servers, *AGGREGATE_STREAMS)}
    both = archived | live
    return [both[place] for place in servers.stored_at_s if place in both]


async def _segments(archive: Archive) -> Sequence[RawMessage]:
    found: list[RawMessage] = []
    for name in await archive.names():
        manifest = await archive.verify(name)
        async for block in archive.blocks(manifest):
            found += block
    return found


def lived(seed: int, *, days: int) -> tuple[Years, History]:
    """Return a world after so many days, and what happened in it: always the same."""
    world = Years(seed, days=days)
    return world, simulate(world.run())
