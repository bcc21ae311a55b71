"""Loads the lane of an actor, and appends each decision at the version that it was made on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.lanes import lane as lane_rules
from engine.lanes.lane import EMPTY, Lane
from engine.runtime.context import ActorContext
from engine.runtime.store import Loaded, Store, all_of_it, append_events
from streams.clock import Clock
from streams.errors import VersionConflict
from streams.model.events import LaneEvent
from streams.ports.all import Ports
from streams.ports.log import START, Recorded


@dataclass
class LaneStore:
    """The lane of one actor, for one reader and writer."""

    ports: Ports
    clock: Clock
    actor: str
    writer_ids: Iterator[str]
    """Unique ids for commits."""
    lane: Lane = EMPTY
    version: int = START
    newest: Recorded | None = field(default=None)
    """The commit at `version`, as it was read: its effects may not be done yet."""

    async def read(self) -> None:
        """Take the lane as the journal has it now."""
        subject = self.ports.stack.lane(self.actor)
        loaded = await self._load(subject, lane_rules.beginning)
        records = loaded.records
        if records and not lane_rules.is_complete(records, past=lane_rules.beginning(records[-1])):
            loaded = await self._load(subject, all_of_it)
        self.newest = loaded.records[-1] if loaded.records else None
        self.lane, self.version = loaded.state, loaded.version

    async def _load(self, subject: str, after: Callable[[Recorded], int]) -> Loaded[Lane]:
        store = Store[Lane, LaneEvent](self.ports.log, self.clock, lane_rules.fold, after=after)
        return await store.load(subject)

    async def check(self) -> None:
        """Raise `VersionConflict` if another node has scheduled, where no append would show it."""
        subject = self.ports.stack.lane(self.actor)
        last = await self.ports.log.last(subject)
        if (last.seq if last else START) != self.version:
            raise VersionConflict(subject, expected=self.version)

    async def append(self, events: Sequence[LaneEvent]) -> None:
        """Append a decision; on `VersionConflict` another node schedules: read and decide again."""
        log, subject = self.ports.log, self.ports.stack.lane(self.actor)
        id_, at = f"lane.{next(self.writer_ids)}", self.clock.now()
        # guard: lane-version-single-dispatcher
        self.version = await append_events(log, subject, events, id=id_, at=at, after=self.version)
        for event in events:
            self.lane = lane_rules.evolve(self.lane, event, version=self.version)


async def read_lane(context: ActorContext) -> LaneStore:
    """Return the lane of an actor as the journal has it."""
    store = LaneStore(context.ports, context.clock, context.actor.id, context.writer_ids)
    await store.read()
    return store
