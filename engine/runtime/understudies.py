"""Has a node's understudies serve while no other node has their part, and give way to any that has.

What has a problem on this node may run on another one, and all nodes share its queues. A node that
takes work from them which it cannot do has to hand it back, later each time, and so keeps it from
those that can. So it takes none while presence shows a node that runs the actor or the workflow, or
could if that were not disabled. Once no such node is there, it has what is open go on as far as it
can: under a revision that it can make, perhaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from engine import nodes
from engine.runtime.cast import Cast
from engine.runtime.lineup import Lineup
from engine.runtime.presence import Roster
from engine.runtime.waits import wait_first

log = structlog.get_logger("vigil.understudies")


@dataclass(frozen=True)
class Understudies:
    """Calls those of one node."""

    cast: Cast
    lineup: Lineup
    roster: Roster

    async def serve(self) -> None:
        """Call whoever is needed, and have the others rest, for ever."""
        await self.roster.has_looked.wait()
        await wait_first(self._follow_roster(), self._follow_cast())

    async def _follow_roster(self) -> None:
        while True:
            self._settle()
            await self.roster.wait_change()

    async def _follow_cast(self) -> None:
        while True:
            changed = self.cast.changed
            self._settle()
            await changed.wait()

    def _settle(self) -> None:
        there = self.roster.nodes
        needed = {id_ for id_ in self.cast.understudies if not nodes.has_part(there, id_)}
        called, rested = needed - self.cast.called, self.cast.called - needed
        if called or rested:
            self.lineup.call(frozenset(needed))
        if called:
            log.info("stands in", actors=sorted(called))
        if rested:
            log.info("gives way", actors=sorted(rested))
