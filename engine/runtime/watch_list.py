"""Knows which events the queue of an actor's gates is for, as the server has it.

Somebody may have seen that no node watches an event any more, and have had the queue hold it no
longer. What the gates were handed before still comes again and again, and counts towards what they
may have unanswered. This tells that it may be answered for.
"""

from __future__ import annotations

from typing import Final

from streams.clock import Clock
from streams.errors import Unavailable
from streams.world import World

LOOK_S: Final = 5.0
"""Between two looks at the queue, in seconds. Whoever has taken an event from it sees within two
seconds whether some node needs it after all, and then gives it back; so it counts as gone once a
second look finds the same."""


class WatchList:
    """What the queue of one actor is for. It is looked at only while somebody asks."""

    def __init__(self, world: World, clock: Clock, actor: str) -> None:
        """Know nothing yet."""
        self._world, self._clock, self._actor = world, clock, actor
        self._asked: set[str] = set()
        """Names that were asked for since the last look."""
        self._absent: frozenset[str] = frozenset()
        """Those that the queue was not for, at the last look."""
        self._gone: frozenset[str] = frozenset()
        """Those that it was not for at the last two."""
        self._looked_s = -LOOK_S

    async def is_gone(self, name: str) -> bool:
        """Return whether the queue is not for events of this name, and was not some time ago.

        False as long as that is not known, also while the server is away.
        """
        self._asked.add(name)
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            await self._look()
        return name in self._gone

    async def _look(self) -> None:
        try:
            watched = await self._world.watched(self._actor)
        except Unavailable:
            return
        absent = frozenset(self._asked - watched)
        self._gone, self._absent = absent & self._absent, absent
        self._asked.clear()
