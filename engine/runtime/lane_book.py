"""A lane as the journal has it, and the pen that writes it.

Every decision is appended at the version that it was made on. So of two nodes that both believe
that they dispatch one gets a `VersionConflict`, and forgets what it knew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine import lanes
from engine.lanes import EMPTY, Lane
from streams.clock import Clock
from streams.errors import Unavailable, VersionConflict
from streams.events import LaneEvent
from streams.log import START, Commit, Recorded
from streams.ports import Ports
from streams.tracing import traceparent


@dataclass
class LaneBook:
    """The lane of one actor, for one reader and writer."""

    ports: Ports
    clock: Clock
    actor: str
    pens: Iterator[str]
    """Names that nobody used before, for commits."""
    lane: Lane = EMPTY
    version: int = START
    newest: Recorded | None = field(default=None)
    """The commit that it stands at, as it was read: what it asks for may not be done yet."""

    async def read(self) -> None:
        """Take the lane as the journal has it now.

        Raises:
            UnreadableEvent: a newer version of the engine writes it.
            Unavailable: the log is away, or a replica lags.
        """
        subject = self.ports.stack.lane(self.actor)
        last = await self.ports.log.last(subject)
        after = lanes.beginning(last)
        records = await self.ports.log.read(subject, after=after) if last else ()
        self.newest = records[-1] if records else None
        if (self.newest and self.newest.seq) != (last and last.seq):
            raise Unavailable(subject, detail="what a replica holds is not the newest")
        self.lane = lanes.fold(records)
        self.version = self.newest.seq if self.newest else START

    async def check(self) -> None:
        """Check that the lane is as we know it, where nothing is to be written that would tell.

        Raises:
            VersionConflict: someone else dispatches. Read again, decide again.
            Unavailable: the log is away.
        """
        subject = self.ports.stack.lane(self.actor)
        last = await self.ports.log.last(subject)
        if (last.seq if last else START) != self.version:
            raise VersionConflict(subject, expected=self.version)

    async def append(self, events: Sequence[LaneEvent]) -> None:
        """Write a decision down.

        Raises:
            VersionConflict: someone else dispatches. Read again, decide again.
            Unavailable: the log is away. It may be written.
        """
        commit = Commit(
            id=f"lane.{next(self.pens)}",
            at=self.clock.now(),
            events=tuple(events),
            trace=traceparent(),
        )
        subject = self.ports.stack.lane(self.actor)
        self.version = await self.ports.log.append(subject, commit, after=self.version)
        for event in events:
            self.lane = lanes.evolve(self.lane, event, version=self.version)
