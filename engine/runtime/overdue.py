"""Ends what nobody renewed for as long as it lasts, by this node's own clock.

The server ends it, too, but later (`GRACE_S`), and looks for what is over at most every 250 ms. So
each node that watches asks for the end itself, at the revision that it has seen stand for a whole
life: of several nodes one is right, and a renewal that any of them has not heard of yet refuses
them all. No node can be too early: the life that it counts begins when it *hears* of a renewal, and
its holder's began when that was sent.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import structlog

from engine.runtime.gather import gather_bounded
from engine.runtime.tasks import wait_set
from streams.clock import Clock
from streams.errors import StreamError

ENDS_IN_FLIGHT_MAX: Final = 64
"""Ends that are asked for at a time: of a node with a thousand claims, say."""

log = structlog.get_logger("vigil.leases")

End = Callable[[str, int], Awaitable[None]]
"""Ends a key at a revision; does nothing if it has moved on."""


@dataclass
class Overdue:
    """Keys of one bucket that last for some time, as one node hears of them."""

    clock: Clock
    node: str
    end: End
    _revisions: dict[str, int] = field(default_factory=dict)
    """Of what stands, by key."""
    _ends: list[tuple[float, int, str]] = field(default_factory=list)
    """A heap: when each is over, its revision and its key; also of what was renewed since."""
    _sooner: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when something is over sooner than what was first before."""

    def note(self, key: str, revision: int, *, life_s: float | None) -> None:
        """Take note that `key` was written just now, to last for `life_s`; None: it is gone."""
        if life_s is None:
            self._revisions.pop(key, None)
            return
        self._revisions[key] = revision
        due = (self.clock.monotonic_s() + life_s, revision, key)
        heapq.heappush(self._ends, due)
        if self._ends[0] is due:
            self._sooner.set()

    async def run(self) -> None:
        """Ask for the end of what is over, for ever."""
        while True:
            self._sooner.clear()
            if self._ends:
                left_s = max(0.0, self._ends[0][0] - self.clock.monotonic_s())
                await wait_set(self._sooner, within_s=left_s, clock=self.clock)
            else:
                await self._sooner.wait()
            await gather_bounded(self._ask, self._over(), in_flight_max=ENDS_IN_FLIGHT_MAX)

    def _over(self) -> Sequence[tuple[str, int]]:
        """Take what is over by now, each node in its own order: who is later has less to do."""
        now_s, over = self.clock.monotonic_s(), list[tuple[str, int]]()
        while self._ends:
            due_s, revision, key = self._ends[0]
            stands = self._stands(key, revision)
            if stands and due_s > now_s:
                break
            heapq.heappop(self._ends)
            if stands:
                over.append((key, revision))
        return sorted(over, key=self._turn)

    def _stands(self, key: str, revision: int) -> bool:
        return self._revisions.get(key) == revision  # guard: renewed-key-not-ended

    def _turn(self, each: tuple[str, int]) -> int:
        return crc32(f"{self.node} {each[0]}".encode())

    async def _ask(self, each: tuple[str, int]) -> None:
        key, revision = each
        if not self._stands(key, revision):
            return
        del self._revisions[key]
        try:
            await self.end(key, revision)
        except StreamError as error:  # The server ends it in its own time.
            log.debug("what is over was not ended", key=key, error=str(error))
