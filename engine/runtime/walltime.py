"""How long an episode has been running, and the limit on that. It stands still at barriers.

The same limit cuts an episode off that is canceled. Barriers are not cut off either: what is on its
way to the journal arrives.

The log may be away for minutes. An episode that waits for it does nothing that its budget is
there to limit, and must not fail for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.errors import EpisodeFailed
from streams.clock import Clock


class WallTime:
    """The running time of one attempt, on top of what earlier ones used."""

    def __init__(self, clock: Clock, *, limit_s: float, used_s: float) -> None:
        """Begin to count.

        Args:
            clock: measures the time.
            limit_s: most seconds of running, over all attempts; 0 or less is no limit.
            used_s: seconds that earlier attempts used.
        """
        self.limit = clock.timeout(max(0.0, limit_s - used_s) if limit_s > 0 else None)
        """Cuts off whoever works within it, once the time is used up."""
        self._clock, self._limit_s = clock, limit_s
        self._since_s = clock.monotonic_s() - used_s
        self._is_still = False
        self._is_cut_off = False

    def used_s(self) -> float:
        """Return the seconds of running so far, over all attempts."""
        return self._clock.monotonic_s() - self._since_s

    def cut_off(self) -> None:
        """Cut off who works within the limit, now or right after the barrier."""
        self._is_cut_off = True
        if not self._is_still and not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time())

    async def standing_still(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for the log without using up any time.

        Raises:
            EpisodeFailed: the time was used up before, and user code would not be cut off.
        """
        if self.limit.expired():
            raise EpisodeFailed("budget_exceeded", f"wall_s: all {self._limit_s:g} used")
        began_s, ends_s = self._clock.monotonic_s(), self.limit.when()
        self.limit.reschedule(None)
        self._is_still = True
        try:
            await wait()
        finally:
            waited_s = self._clock.monotonic_s() - began_s
            self._since_s += waited_s
            self._is_still = False
            self.limit.reschedule(None if ends_s is None else ends_s + waited_s)
            if self._is_cut_off:
                self.cut_off()
