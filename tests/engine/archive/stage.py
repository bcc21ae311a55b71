"""A journal in memory whose episodes begin and end on virtual time, and the archive of it."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from engine.archive.run import ArchivePlan, ArchiveReport, KnownRows, PartReport, archive_once
from streams.archive.archive import Archive
from streams.archive.memory import MemoryArchive
from streams.archive.segment import SegmentLimits
from streams.keys import published_key
from streams.layout import FOLLOWED, Stream
from streams.memory import MemoryPorts, memory_ports
from streams.model.events import LogEvent
from streams.ports.log import Commit
from streams.subjects import Stack
from tests.engine.reactor import journals as given
from tests.simulation.time import SimClock, simulate

HOUR_S = 3_600.0
HOT_S = 10 * HOUR_S
SMALL = SegmentLimits(messages_max=7, block_bytes=300)
"""Segments of a few messages in a few blocks, so that a short journal has several."""


@dataclass
class Stage:
    """A stack, and what archives it."""

    stack: Stack = field(default_factory=lambda: Stack("s"))
    clock: SimClock = field(default_factory=SimClock)
    store: MemoryArchive = field(default_factory=MemoryArchive)
    plan: ArchivePlan = field(default_factory=lambda: ArchivePlan(hot_s=HOT_S, limits=SMALL))
    rows: dict[str, int] | None = field(default_factory=dict)
    rows_since: datetime | None = None

    def __post_init__(self) -> None:
        self.ports: MemoryPorts = memory_ports(stack=self.stack, clock=self.clock)
        self.archive = Archive(self.store, self.stack)
        self._ids = count(1)

    async def append(self, subject: str, *events: LogEvent) -> int:
        last = await self.ports.log.last(subject)
        commit = Commit(id=f"c{next(self._ids)}", at=self.clock.now(), events=events)
        return await self.ports.log.append(subject, commit, after=last.seq if last else 0)

    async def open(self, *names: str) -> None:
        for name in names:
            opened = replace(given.OPENED, episode_id=name)
            await self.append(self.stack.episode(name), opened, given.STARTED)

    async def step(self, *names: str) -> None:
        for name in names:
            await self.append(self.stack.episode(name), given.STEP)

    async def end(self, *names: str) -> None:
        for name in names:
            await self.append(self.stack.episode(name), given.FINISHED)

    async def live(self, *names: str) -> None:
        """Have episodes begin and end."""
        await self.open(*names)
        await self.step(*names)
        await self.end(*names)

    async def output(self, key: str, *events: LogEvent) -> None:
        await self.append(self.stack.output(key), *events)

    async def later(self, hours: float = 11.0) -> None:
        await self.clock.sleep(hours * HOUR_S)

    async def react(self, *, up_to: int | None = None) -> None:
        """Note that what follows from all commits was published, or from those of the journals up
        to a sequence."""
        for stream in FOLLOWED:
            for partition in self.stack.partitions_of(stream):
                head = await self.ports.log.head(stream, partition=partition)
                seq = up_to if up_to is not None and stream is Stream.JOURNAL else head
                part = self.stack.part(stream, partition)
                await self.ports.gates.put(published_key(part), str(seq).encode())

    async def run(self, **plan: Any) -> ArchiveReport:
        if not await self._has_positions():
            await self.react()
        report = await archive_once(
            self.ports,
            self.archive,
            replace(self.plan, **plan),
            rows=self.known_rows,
            node="n1",
            clock=self.clock,
        )
        assert report is not None
        return report

    @property
    def known_rows(self) -> KnownRows | None:
        """What the tables have."""
        if self.rows is None:
            return None
        return KnownRows(positions=self.rows, since=self.rows_since)

    async def one(self, **plan: Any) -> PartReport:
        """Run, and return what was done with the only journal."""
        (part,) = (await self.run(**plan)).parts
        return part

    async def first_seq(self, partition: int = 0) -> int:
        state = await self.ports.states.of(self.stack.part(Stream.JOURNAL, partition))
        assert state is not None
        return state.first_seq

    async def _has_positions(self) -> bool:
        return bool(await self.ports.gates.entries(under="published"))


def play(work: Coroutine[Any, Any, Any]) -> Any:
    return simulate(work)
