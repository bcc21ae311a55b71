"""What has come in for a dispatcher since its last decision: ruled on, in order, and bounded.

Those who bring it wait for room. Room is counted in episodes that want a place and are not in the
lane yet, so a lane that may hold no more stops what fills it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from engine.lanes.lane import Wanted
from engine.runtime.slots import Slots
from streams.model.events import EpisodeOpened
from streams.ports.delivery import Delivery
from streams.ports.domain_events import DomainEvent
from streams.ports.timers import Due

ITEMS_MAX: Final = 1_000
"""Events that were ruled on and that no decision has seen yet. As many wait in memory at most."""

LAG_MAX: Final = 1_000
"""Events that came to nothing, all by themselves, before it is written down that they were ruled
on. After a crash they are ruled on again, to the same effect. What came to nothing because of what
the cluster remembered is written down at once: it might fire the next time."""

DUE_MAX: Final = 256
"""Due messages that are unanswered at a time."""

HAUL_MAX: Final = 500
"""Episodes that one decision places at most: their tickets, and all that the lane holds besides,
fit in one commit."""

Cause: TypeAlias = DomainEvent | Due


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An episode that something asks for."""

    opened: EpisodeOpened
    wanted: Wanted
    cause: Cause
    seq: int
    """Of the cause, in its stream."""
    trace: str = ""
    is_open: bool = False
    """Whether it is known that the episode is open, and that it waits for its turn."""


@dataclass(frozen=True, kw_only=True)
class InputItem:
    """One event or one due message, ruled on."""

    cursors: Mapping[str, int] = field(default_factory=dict)
    """How far the reader has come with it."""
    anew: Mapping[str, int] = field(default_factory=dict)
    """Cursors that begin, or begin again before where they are."""
    is_binding: bool = False
    """Whether it must not be ruled on again: what the cluster remembered then had a say."""
    asked: Sequence[Asked] = ()
    left: str = ""
    """The episode that has ended, or waits for something else; empty: none."""
    delivery: Delivery[Any] | None = None
    """To be answered for."""


@dataclass(kw_only=True)
class InputBatch:
    """What one decision sees."""

    items: list[InputItem] = field(default_factory=list)

    @property
    def asked(self) -> list[Asked]:
        """The episodes that are asked for, in the order of their causes."""
        return [asked for item in self.items for asked in item.asked]

    @property
    def cursors(self) -> dict[str, int]:
        """How far its items reach."""
        reached: dict[str, int] = {}
        for item in self.items:
            reached |= {**item.anew, **item.cursors}
        return reached

    @property
    def anew(self) -> dict[str, int]:
        """The cursors that begin, or begin again."""
        return {name: seq for item in self.items for name, seq in item.anew.items()}

    @property
    def is_binding(self) -> bool:
        """Whether how far its items reach is to be written down before anything else is done."""
        return any(item.is_binding or item.anew for item in self.items)

    @property
    def left(self) -> list[str]:
        """The episodes that have ended, or wait for something else."""
        return [item.left for item in self.items if item.left]

    @property
    def deliveries(self) -> list[Delivery[Any]]:
        """What is to be answered for."""
        return [item.delivery for item in self.items if item.delivery is not None]


class Mailbox:
    """Between those who bring items and the one who decides."""

    def __init__(self) -> None:
        """Begin empty, and without room for episodes."""
        self.due_room = Slots(DUE_MAX)
        self._items: deque[InputItem] = deque()
        self._most = 0
        self._expected = 0
        self._unsettled = 0
        """Episodes that were asked for by events, and that no decision is through with."""
        self._news = asyncio.Event()
        self._moved = asyncio.Event()

    def put(self, items: Iterable[InputItem]) -> None:
        """Bring items, in order."""
        for item in items:
            self._items.append(item)
            self._unsettled += len(item.asked)
        self._news.set()

    def nudge(self) -> None:
        """Have the one who decides look again, though nothing was brought."""
        self._news.set()

    async def take(self) -> InputBatch:
        """Wait until there is something new, and return it: the oldest, as far as one may see."""
        await self._news.wait()
        batch, asked = InputBatch(), 0
        while self._items and (asked < HAUL_MAX):
            item = self._items.popleft()
            asked += len(item.asked)
            batch.items.append(item)
        if not self._items:
            self._news.clear()
        return batch

    def settle(self, batch: InputBatch) -> None:
        """Take note that a decision is through with `haul`."""
        self._unsettled -= len(batch.asked)
        for _ in batch.deliveries:
            self.due_room.give_back()
        self._moved.set()

    def allow(self, most: int) -> None:
        """Let events ask for up to `most` episodes beyond what the lane holds."""
        self._most = most
        self._moved.set()

    def expect(self, count: int) -> None:
        """Keep room for `count` episodes that others than events will ask for again."""
        self._expected = count
        self._moved.set()

    async def wait_room(self) -> int:
        """Wait until events may ask for an episode, and return for how many they may."""
        while (room := self.room - self._expected) <= 0:
            self._moved.clear()
            await self._moved.wait()
        return room

    def unanswered(self) -> list[Delivery[Any]]:
        """Return the deliveries that no decision has seen."""
        return InputBatch(items=list(self._items)).deliveries

    @property
    def room(self) -> int:
        """How many more episodes may be asked for; below 1, none."""
        return min(self._most - self._unsettled, ITEMS_MAX - len(self._items))
