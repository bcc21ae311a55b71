"""How fast one node delivers through one adapter: so many at a time, and so many a second.

Each node counts for itself: of a receiver that bears five a second, three nodes may ask fifteen.
"""

from __future__ import annotations

import asyncio

from engine.runtime.slots import Slots
from streams.clock import Clock


class Throttle:
    """Places for deliveries. Who waits gets one first."""

    def __init__(self, clock: Clock, *, max_concurrent: int, rate_per_s: float | None) -> None:
        """Begin with every place free.

        Args:
            clock: counts the seconds.
            max_concurrent: deliveries at a time.
            rate_per_s: deliveries that may begin in a second, evenly spread; None: any number.
        """
        self._clock, self._slots = clock, Slots(max_concurrent)
        self._apart_s = 1 / rate_per_s if rate_per_s else 0.0
        self._next_s = clock.monotonic_s()
        """When the next delivery may begin."""

    def try_enter(self) -> bool:
        """Take a place for a delivery that begins now, and return whether there was one."""
        if self._wait_s() > 0 or not self._slots.try_take():
            return False
        self._reserve_s()
        return True

    async def enter(self, *, within_s: float, unless: asyncio.Event) -> bool:
        """Wait until a delivery may begin; return whether it may.

        Args:
            within_s: longest wait, in seconds.
            unless: once it is set, nobody waits for a place any more.
        """
        until_s = self._clock.monotonic_s() + within_s
        if not await self._slots.take(within_s=within_s, unless=unless):
            return False
        if self._clock.monotonic_s() + self._wait_s() > until_s:
            self.leave()
            return False
        try:
            await self._clock.sleep(self._reserve_s())
        except asyncio.CancelledError:
            self.leave()
            raise
        return True

    def leave(self) -> None:
        """Give the place back: the delivery is over."""
        self._slots.give_back()

    def _wait_s(self) -> float:
        return max(0.0, self._next_s - self._clock.monotonic_s())

    def _reserve_s(self) -> float:
        """Put one delivery down, and return how long it has to wait, in seconds."""
        wait_s = self._wait_s()
        self._next_s = self._clock.monotonic_s() + wait_s + self._apart_s
        return wait_s
