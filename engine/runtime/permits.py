"""Permits: permission to work, which may be granted and withdrawn at any time.

Each grant has an event of its own that is set when it is withdrawn and stays set: so code that
works under one grant notices its end, even if the next one follows at once. Branches of a permit
are granted and withdrawn with it, and may each end earlier: a replaced consumer loses its branch,
while its work goes on under the trunk. A held branch is not granted until it is released.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


class Permit:
    """Whether something may be done now; at first it may not."""

    def __init__(self) -> None:
        self.withdrawn = asyncio.Event()
        """Set at the end of the newest grant, for good."""
        self.withdrawn.set()
        self.is_given = False
        """Whether it may be done now."""
        self.is_over = False
        """Whether it will never be given again."""
        self._is_on = self._is_held = False
        self._settled = asyncio.Event()
        self._branches: set[Permit] = set()

    def turn(self, *, on: bool) -> bool:
        """Give or withdraw the permit, and return whether that changed anything."""
        self._is_on = on
        return self._settle()

    def hold(self, *, on: bool) -> bool:
        """Hold the permit back or let it go, and return whether that gave or withdrew it."""
        self._is_held = on
        return self._settle()

    def end(self) -> None:
        """Withdraw the permit for ever, and all its branches."""
        self.is_over, self.is_given = True, False
        self.withdrawn.set()
        self._settled.set()
        for each in self._branches:
            each.end()
        self._branches.clear()

    def branch(self) -> Permit:
        """Return a permit that is given whenever this one is, until either ends."""
        made = Permit()
        made.turn(on=self.is_given)
        if self.is_over:
            made.end()
        # One that has ended is no branch any more: as many are kept as may still be given.
        self._branches = {each for each in self._branches if not each.is_over} | {made}
        return made

    def _settle(self) -> bool:
        is_given = self._is_on and not self._is_held  # guard: held-back-gets-nothing
        if is_given is self.is_given or self.is_over:
            return False
        self.is_given = is_given
        if is_given:
            self.withdrawn = asyncio.Event()  # guard: mode-end-noticed
            self._settled.set()
        else:
            self.withdrawn.set()
            self._settled.clear()
        for each in self._branches:
            each.turn(on=is_given)
        return True

    async def wait_given(self) -> bool:
        """Wait until it is given or never will be again, and return whether it is given."""
        await self._settled.wait()
        return self.is_given


@dataclass(frozen=True)
class Permits:
    """What a node may do for one of its actors."""

    wakes: Permit = field(default_factory=Permit)
    """Take what may wake the actor, evaluate it, and open episodes."""
    runs: Permit = field(default_factory=Permit)
    """Take its episodes, and run them beyond the next barrier."""
    tends: Permit = field(default_factory=Permit)
    """Take the timers of its episodes while nothing may wake it: it is paused."""

    def branch(self) -> Permits:
        """Return branches of all."""
        return Permits(
            wakes=self.wakes.branch(), runs=self.runs.branch(), tends=self.tends.branch()
        )

    def end(self) -> None:
        """Withdraw all for ever."""
        self.wakes.end()
        self.runs.end()
        self.tends.end()
