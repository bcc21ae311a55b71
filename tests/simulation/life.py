"""One process. It may stand still for longer than its leases, and it may die anywhere.

All that the outside sees of a process are its calls, so death and standing still are
enforced where calls pass: a dead process never gets through, a frozen one later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from tests.simulation.time import SimClock


class Life:
    """A process from its start to its end."""

    def __init__(
        self, name: str, *, number: int = 0, skew_s: float = 0.0, is_mortal: bool = True
    ) -> None:
        """Begin.

        Args:
            name: the node's; the process that replaces a dead one has the same.
            number: unique to this process.
            skew_s: how far its wall clock is off.
            is_mortal: whether it may freeze and die.
        """
        self.name, self.number, self.is_mortal = name, number, is_mortal
        self.clock = LifeClock(self, skew_s)
        self.dead = False
        self.on_death: Callable[[], object] = lambda: None
        self._frozen_until_s = 0.0

    def die(self) -> None:
        """End here and now. Whatever is under way inside has no effect any more."""
        if not self.dead:
            self.dead = True
            self.on_death()

    def freeze(self, seconds: float) -> None:
        """Stand still."""
        self._frozen_until_s = self.clock.monotonic_s() + seconds

    async def passage(self) -> None:
        """Return once the process is running; never, if it is dead."""
        while True:
            if self.dead:
                raise asyncio.CancelledError
            left_s = self._frozen_until_s - self.clock.monotonic_s()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)


class LifeClock(SimClock):
    """The clock of one process: off by a bit, and deaf while the process stands still."""

    def __init__(self, life: Life, skew_s: float) -> None:
        super().__init__()
        self._life, self._skew = life, timedelta(seconds=skew_s)

    def now(self) -> datetime:
        return super().now() + self._skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._life.passage()
