"""Closes the lane of an actor that no longer has limits: all that wait start at once.

One commit closes it. The gates share the queue that the scheduler has read, so they just go on. A
scheduler of an older version keeps the lease meanwhile, and this waits for it. It reads no events,
so nodes run it for a paused actor, too: its waiting episodes would be stuck otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from engine.episodes.breaker_store import EpisodeContext
from engine.lanes import lane as lane_rules
from engine.lanes.effects import LaneEffects
from engine.lanes.store import LaneStore, read_lane
from engine.runtime.tasks import wait_first, wait_set
from streams.errors import VersionConflict
from streams.keys import lane_claim

STANDBY_S: Final = 5.0
"""Longest wait for the lease before it is asked for again."""

log = structlog.get_logger("vigil.lanes")


@dataclass
class LaneCloser:
    """Closes the lane of one actor, if it has one."""

    context: EpisodeContext

    async def run(self) -> None:
        """Close the lane unless it is closed, then wait until the permit is withdrawn."""
        withdrawn, leases = self.context.permits.runs.withdrawn, self.context.leases
        key = lane_claim(self.context.actor.id)
        while not withdrawn.is_set() and not await self._is_closed():
            freed = self.context.lease_events.of(key)
            held = await leases.acquire(key, on_lost=_nothing)
            if held is None:
                wait = wait_set(freed, within_s=STANDBY_S, clock=self.context.clock)
                await wait_first(wait, withdrawn.wait())
                continue
            try:
                await self._close()
            finally:
                await leases.complete(held)
        await withdrawn.wait()

    async def _is_closed(self) -> bool:
        store = await read_lane(self.context)
        lane = store.lane
        if lane.waiting or lane.admitted:
            return False
        # The node that closed it may have died before all were called.
        await self._complete(store)
        return True

    async def _close(self) -> None:
        """Give all that wait their turn."""
        store = await read_lane(self.context)
        await self._complete(store)
        try:
            await store.append(lane_rules.closing(store.lane))
        except VersionConflict:
            return
        waited = len(store.lane.waiting)
        await self._complete(await read_lane(self.context))
        log.info("lane closed: its actor has no limits any more", actor=store.actor, waited=waited)

    async def _complete(self, store: LaneStore) -> None:
        if store.newest is not None:
            await LaneEffects(self.context).complete(store.newest, store.lane)


def _nothing() -> None:
    """Do nothing: if the lease is lost, the version of the lane refuses the commit."""
