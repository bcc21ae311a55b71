"""A bounded buffer of what may be lost, on its way to be stored by somebody else.

Whoever puts never waits. Each key has a line of its own, which keeps its newest: so a busy key
costs no other one its room, and no key costs more storing than is kept of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ITEMS_MAX: Final = 10_000
"""Most items of all lines together: some megabytes."""


@dataclass(eq=False)
class DroppingBuffer(Generic[T]):
    """Items that wait to be stored, as far as there is room."""

    line_max: int
    """Most items of one key."""
    items_max: int = ITEMS_MAX
    """Most items of all keys."""
    _lines: dict[Hashable, deque[T]] = field(default_factory=dict)
    """By key; the key that has waited longest comes first."""
    _count: int = 0
    _dropped: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, key: Hashable, item: T) -> None:
        """Add an item; if there is no room, drop the oldest of its key, or of all."""
        line = self._lines.setdefault(key, deque())
        line.append(item)
        self._count += 1
        if len(line) > self.line_max:  # guard: full-line-drops-its-oldest
            self._drop(key)
        elif self._count > self.items_max:  # guard: full-buffer-drops-oldest
            self._drop(next(iter(self._lines)))
        self._news.set()

    @property
    def waiting(self) -> Sequence[T]:
        """The items, those of a key together and the oldest first."""
        return [item for line in self._lines.values() for item in line]

    @property
    def news(self) -> asyncio.Event:
        """Set while there are items."""
        return self._news

    def take(self) -> tuple[Sequence[T], int]:
        """Take all items, and return how many were dropped since the last time."""
        items, dropped = self.waiting, self._dropped
        self._lines, self._count, self._dropped = {}, 0, 0
        self._news.clear()
        return items, dropped

    def _drop(self, key: Hashable) -> None:
        line = self._lines[key]
        line.popleft()
        if not line:
            del self._lines[key]
        self._count -= 1
        self._dropped += 1
