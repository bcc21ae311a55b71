"""Leave to do something, which may be given and withdrawn while it is being done.

Each time it is given it comes with an event of its own that says when it is withdrawn, and that
stays set. So whoever works under one grant notices its end, even if the next one follows at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


class Permit:
    """Whether something may be done now. In the beginning it may not."""

    def __init__(self) -> None:
        self.withdrawn = asyncio.Event()
        """Set at the end of the newest grant, for good."""
        self.withdrawn.set()
        self._is_over = False
        self._settled = asyncio.Event()

    @property
    def is_given(self) -> bool:
        """Whether it may be done now."""
        return not self.withdrawn.is_set()

    def turn(self, *, on: bool) -> bool:
        """Give or withdraw the permit, and return whether that changed anything."""
        if on is self.is_given or self._is_over:
            return False
        if on:
            self.withdrawn = asyncio.Event()
            self._settled.set()
        else:
            self.withdrawn.set()
            self._settled.clear()
        return True

    def end(self) -> None:
        """Withdraw the permit for ever."""
        self._is_over = True
        self.withdrawn.set()
        self._settled.set()

    async def wait_given(self) -> bool:
        """Wait until it is given, or never will be again, and return whether it is given."""
        await self._settled.wait()
        return self.is_given


@dataclass(frozen=True)
class Permits:
    """What a node may do for one of its actors, from moment to moment."""

    wakes: Permit = field(default_factory=Permit)
    """Take what may wake the actor, rule on it, and open episodes."""
    runs: Permit = field(default_factory=Permit)
    """Take its episodes, and drive them beyond the next barrier."""
