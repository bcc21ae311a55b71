"""How fast one node delivers through one adapter: so many at a time, and so many a second.

Each node counts for itself: of a receiver that bears five a second, three nodes may ask fifteen.

Who cannot begin soon is sent away, with a time to come back at: each one a step of the rate after
the one before. It is no reservation. They may come back to another node, or not at all, so whoever
comes takes the next place that is free; only who comes for the first time waits behind the others.
"""

from __future__ import annotations

import asyncio
from typing import Final

from engine.runtime.slots import Slots
from streams.clock import Clock

AWAY_S: Final = 10.0
"""Shortest time that somebody is sent away for, in seconds."""

AWAY_S_MAX: Final = 3_600.0
"""Longest such time: after that a route may have another rate, or other nodes may have room."""

AWAY_MAX: Final = 10_000
"""Outputs whose times are remembered. Forgetting them has each told another one, if it comes back
too early."""


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
        self._last_s = self._next_s
        """When the last one is to come back of those who were sent away."""
        self._back_s: dict[str, float] = {}
        """Key → when it is to come back."""

    @property
    def wait_s(self) -> float:
        """How long until a delivery may begin, in seconds, as far as the rate is concerned."""
        return max(0.0, self._next_s - self._clock.monotonic_s())

    @property
    def queue_s(self) -> float:
        """How long until the last one is to come back of those who were sent away, in seconds."""
        return max(0.0, self._last_s - self._clock.monotonic_s())

    def is_open(self, *, within_s: float) -> bool:
        """Return whether a delivery may seem to begin within so many seconds."""
        return self.wait_s <= within_s and self._slots.free > 0

    def send_away_s(self, key: str) -> float:
        """Return how long the output of this key is to stay away, in seconds.

        One that comes back too early is told the same time once more.
        """
        now_s = self._clock.monotonic_s()
        if self._back_s.get(key, now_s) > now_s:
            return self._back_s[key] - now_s
        back_s = max(self._last_s, self._next_s, now_s + AWAY_S) + self._apart_s
        self._last_s = min(back_s, now_s + AWAY_S_MAX)
        if len(self._back_s) >= AWAY_MAX:
            self._back_s.clear()
        self._back_s[key] = self._last_s
        return self._last_s - now_s

    def try_enter(self) -> bool:
        """Take a place for a delivery that begins now, and return whether there was one."""
        if self.wait_s > 0 or self.queue_s > 0 or not self._slots.try_take():
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
        if self._clock.monotonic_s() + self.wait_s > until_s:
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

    def _reserve_s(self) -> float:
        """Put one delivery down, and return how long it has to wait, in seconds."""
        wait_s = self.wait_s
        self._next_s = self._clock.monotonic_s() + wait_s + self._apart_s
        return wait_s
