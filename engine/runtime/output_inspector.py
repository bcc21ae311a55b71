"""Inspects the outputs of an episode that nobody has: is it to be gone on with, or when will it be.

What time alone brings about is done on the way: who was to decide is reminded, and what nobody has
decided in time expires. None of that needs the episode to be taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from engine.delivering import Attempt, Fail, Later, Move, expired, has_expired, next_move
from engine.episode import Episode
from engine.output import Output, is_own
from engine.proposal import wanted
from engine.route import Retries
from engine.runtime.attendance import call_by
from engine.runtime.output_crew import OutputCrew
from engine.runtime.output_herald import OutputHerald
from engine.runtime.output_letters import write_failed
from engine.runtime.parcel import Parcel
from engine.runtime.throttle import PLACE_S
from engine.runtime.undertaker import Undertaker
from engine.status import ENDED, Status
from streams.events import EpisodeOpened, OutputEvent

LOOKS_IN_FLIGHT_MAX: Final = 16
"""Outputs of one episode that are looked at, at a time."""


@dataclass(frozen=True)
class OutputInspector:
    """Looks at the outputs of one episode, on one node."""

    crew: OutputCrew
    opened: EpisodeOpened
    episode: Episode
    at: datetime
    """Now, by the server's clock: what people have until a time for is ruled on by that, as their
    decisions are."""

    async def finds_work(self) -> bool:
        """Return whether the episode is to be gone on with; remind and expire what is due else.

        What is due later has a node called again.

        Raises:
            Unavailable: the log is away. Look again.
        """
        room = asyncio.Semaphore(LOOKS_IN_FLIGHT_MAX)

        async def look(key: str) -> datetime | bool | None:
            async with room:
                return await self._look(key)

        keys = self._keys()
        found = await asyncio.gather(*(look(key) for key in keys))
        times = [each for each in found if isinstance(each, datetime)]
        if times:
            # Also if there is work: that may wait for a slot, and nobody else is to.
            await call_by(self.crew.ports, self.opened, min(times))
        if any(each is True for each in found):
            return True
        if times:
            self.crew.outlets.line_up(keys, self.opened)
        return False

    def _keys(self) -> Sequence[str]:
        """Return the keys of outputs of the episode that may not be settled."""
        deferred = self.episode.deferred
        if deferred is not None and self.episode.status is Status.DELIVERING:
            return deferred.pending
        return list(wanted(self.episode, self.opened))

    async def _look(self, key: str) -> datetime | bool | None:
        """Return whether something is to be done about an output now; or when it will be, if so."""
        parcel = Parcel(self.crew.ports, self.crew.clock, key, pen=next(self.crew.pens))
        await parcel.amend(self._expired)
        await self._bury(parcel)
        herald = OutputHerald(self.crew.ports.world, self.opened)
        await herald.tell_decided(parcel)
        await herald.remind(parcel, at=self.at)
        move = next_move(
            parcel.output,
            key,
            episode_id=self.opened.episode_id,
            attempts_max=Retries().attempts_max,
            at=max(self.at, self.crew.clock.now()),
        )
        if isinstance(move, Later):
            return move.at
        away_s = self._stays_away_s(parcel, move)
        if away_s:
            return self.crew.clock.now() + timedelta(seconds=away_s)
        if self.episode.status in ENDED:
            return isinstance(move, Attempt | Fail)
        return True

    def _expired(self, output: Output) -> OutputEvent | None:
        is_ours = is_own(output, episode_id=self.opened.episode_id)
        return expired(output, at=self.at) if is_ours else None

    def _stays_away_s(self, parcel: Parcel, move: Move) -> float:
        """Return how long an attempt is left for later because its route has no place, in seconds.

        To take the episode over only to find that out would cost it two commits each time.
        """
        proposed = parcel.output.proposed
        outlet = self.crew.outlets.of(proposed.adapter) if proposed else None
        is_open = outlet is None or outlet.throttle.is_open(parcel.key, within_s=PLACE_S)
        if outlet is None or is_open or not isinstance(move, Attempt):
            return 0.0
        return outlet.throttle.send_away_s(parcel.key)

    async def _bury(self, parcel: Parcel) -> None:
        """Keep a dead letter of what nobody has approved in time: nobody may carry it any more."""
        proposal = parcel.proposal_of(self.opened.episode_id)
        if proposal is not None and has_expired(proposal.output):
            await write_failed(Undertaker(self.crew.ports, self.crew.clock), proposal.output)
