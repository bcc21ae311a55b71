"""Gives the episodes of one actor their turns: one node at a time does so for the whole cluster.

A lease says which. It only saves work: every decision names the version of the lane that it was
made on, so of two nodes that both believe that they dispatch, one is refused and begins anew. The
others stand by, and one of them takes over as soon as the lease is given up or has lapsed.

Where nobody may wake the actor, because it is paused, somebody must still give turns to what waits
already. A dispatcher that takes no causes does that, for as long as no other node takes any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from engine import nodes
from engine.backoff import backoff_s
from engine.runtime.arbiter import Arbiter
from engine.runtime.episode_crew import EpisodeCrew
from engine.runtime.keeper import Keeper
from engine.runtime.permit import Permit
from engine.runtime.presence import Roster
from engine.runtime.stint import Stint
from engine.runtime.undertaker import Undertaker
from engine.runtime.vacancies import Vacancies
from engine.runtime.waits import wait_first, wait_set
from streams.errors import Unavailable, UnreadableEvent, VersionConflict
from streams.keys import lane_claim

STANDBY_S: Final = 5.0
"""Longest wait for the lease before it is asked for again: a watch that was cut off may have
missed that it was given up."""

AGAIN_S: Final = 0.05
"""First pause before the lane is read anew; doubles each time."""

AGAIN_MAX_S: Final = 5.0
"""Longest such pause."""

log = structlog.get_logger("vigil.dispatcher")


@dataclass
class Dispatcher:
    """The dispatcher of one actor on one node: it dispatches, or stands by."""

    crew: EpisodeCrew
    keeper: Keeper
    undertaker: Undertaker
    roster: Roster
    vacancies: Vacancies
    takes_causes: bool
    """Whether it takes what wakes the actor. One that does not gives way to those who do."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once whatever is published is ruled on, here or elsewhere."""

    def __post_init__(self) -> None:
        self._arbiter = Arbiter(self.crew)
        self._key = lane_claim(self.crew.actor.id)
        self._withdrawn = self._permit.withdrawn
        self._failures = 0

    async def serve(self) -> None:
        """Dispatch whenever it is this node's turn, for as long as it may.

        Raises:
            Unavailable: the log is away.
        """
        self._withdrawn = self._permit.withdrawn
        await self._unless_withdrawn(self._wait_known())
        if self.takes_causes:
            await self._begin()
        self.is_open.set()
        await self._unless_withdrawn(self._wait_counted())
        while not self._withdrawn.is_set():
            await self._unless_withdrawn(self._wait_needed())
            freed = self.vacancies.of(self._key)
            if not await self._dispatch():
                wait = wait_set(freed, within_s=STANDBY_S, clock=self.crew.clock)
                await self._unless_withdrawn(wait)

    @property
    def _permit(self) -> Permit:
        permits = self.crew.permits
        return permits.wakes if self.takes_causes else permits.runs

    async def _begin(self) -> None:
        """See to it that the lane has a beginning, unless the permit is withdrawn meanwhile."""
        has_begun = False
        while not has_begun and not self._withdrawn.is_set():
            try:
                await self._stint(self._withdrawn).begin()
                has_begun = True
            except VersionConflict as error:
                # All nodes begin at once when an actor is new, and each but one has to look again.
                await self._pause_after(error, say=log.debug)
            except UnreadableEvent as error:
                await self._pause_after(error)

    async def _dispatch(self) -> bool:
        """Dispatch for as long as this node has the lease; return False if it does not get it."""
        if self._withdrawn.is_set():
            return False
        over, is_understood = asyncio.Event(), True
        held = await self.keeper.acquire(self._key, on_lost=over.set)
        if held is None:
            return False
        ending = asyncio.create_task(self._end_when_due(over))
        try:
            while is_understood and not over.is_set():
                is_understood = await self._serve_stint(over)
            await self.keeper.complete(held)
        finally:
            # If it was not given up, this node is being cut off, or failed by surprise: it lapses.
            self.keeper.forget(held)
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
        return is_understood

    async def _serve_stint(self, over: asyncio.Event) -> bool:
        """Dispatch until it is over, or the lane must be read anew.

        Returns:
            Whether this version of the engine understands the lane.
        """
        failure: BaseException | None = None
        stint, began_s = self._stint(over), self.crew.clock.monotonic_s()
        try:
            await stint.serve()
        except* (VersionConflict, Unavailable, UnreadableEvent) as group:
            failure = _first(group)
        await stint.hand_back()
        if self.crew.clock.monotonic_s() - began_s > AGAIN_MAX_S:
            self._failures = 0
        if failure is not None:
            await self._pause_after(failure)
        return not isinstance(failure, UnreadableEvent)

    def _stint(self, over: asyncio.Event) -> Stint:
        return Stint(
            crew=self.crew,
            arbiter=self._arbiter,
            undertaker=self.undertaker,
            roster=self.roster,
            takes_causes=self.takes_causes,
            over=over,
        )

    async def _end_when_due(self, over: asyncio.Event) -> None:
        """End a stint when the permit is withdrawn, or when it is not needed any more."""
        await self._unless_withdrawn(self._wait_superfluous())
        over.set()

    async def _wait_known(self) -> None:
        """Wait until this node knows the others, and they know it."""
        await self.roster.has_looked.wait()
        while all(each.name != self.crew.node for each in self.roster.nodes):
            await self.roster.wait_change()

    async def _wait_counted(self) -> None:
        """Wait until this node's own room for the actor is known, which it tells once it is open.

        Before that there seems to be no room anywhere, and what finds no room may be dropped.
        """
        while not self._is_counted():
            await self.roster.wait_change()

    def _is_counted(self) -> bool:
        own = (each for each in self.roster.nodes if each.name == self.crew.node)
        return any(self.crew.actor.id in {**each.actors, **each.closed} for each in own)

    async def _wait_needed(self) -> None:
        while not self._is_needed():
            await self.roster.wait_change()

    async def _wait_superfluous(self) -> None:
        while self._is_needed():
            await self.roster.wait_change()

    def _is_needed(self) -> bool:
        return self.takes_causes or not nodes.is_woken(self.roster.nodes, self.crew.actor.id)

    async def _pause_after(
        self, failure: BaseException, *, say: Callable[..., object] = log.warning
    ) -> None:
        self._failures += 1
        pause_s = backoff_s(self._failures, first_s=AGAIN_S, most_s=AGAIN_MAX_S)
        actor = self.crew.actor.id
        say("reading the lane anew", actor=actor, why=str(failure), again_in_s=pause_s)
        await self._unless_withdrawn(self.crew.clock.sleep(pause_s))

    async def _unless_withdrawn(self, wait: Coroutine[Any, Any, object]) -> None:
        await wait_first(wait, self._withdrawn.wait())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return one of the failures that came together."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
