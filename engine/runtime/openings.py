"""What a cause would open, and what has become of it since: openings by what caused them.

What a node has sent to the journal may arrive after it was given up, whatever has become of the
node. If the cause came again meanwhile and was refused, nobody would come back to the episode. No
look tells then, for it may arrive right after that; so it is looked for once it can be on its way
no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from engine import dedupe, placing
from engine.expectation import Expectation
from engine.runtime.crew import Crew
from streams.errors import UnreadableEvent
from streams.events import EpisodeFinished, EpisodeOpened
from streams.log import Recorded
from streams.timers import Timer
from streams.triggers import Trigger

BELATED: Final = "belated"
"""Purpose of the timers that have an episode looked for whose cause was refused, though it may have
been let through before. The key is the episode."""

BELATED_S: Final = 180.0
"""How long after that it is looked for, in seconds. A node tries for a minute to have its commit
stored (`LinkSettings.patience_s`), and what it leaves to its kernel when it ends may be sent for
102 s more: Linux repeats it 8 times, first after 0.2 s, then after twice as long each time."""


@dataclass(frozen=True)
class Openings:
    """The openings of one actor on one node."""

    crew: Crew

    def of(self, expectation: Expectation, trigger: Trigger, dedupe_key: str) -> EpisodeOpened:
        """Return the opening of the episode that `trigger` has for `expectation`."""
        crew = self.crew
        episode_id = dedupe.episode_id(
            stack=crew.ports.stack.name,
            actor=crew.actor.id,
            expectation=expectation.name,
            dedupe_key=dedupe_key,
        )
        within_s = expectation.start_within_s
        return EpisodeOpened(
            episode_id=episode_id,
            actor_id=crew.actor.id,
            expectation_id=expectation.name,
            trigger=trigger,
            dedupe_key=dedupe_key,
            budget=expectation.budget,
            spec_rev=crew.actor.spec_rev,
            revision=crew.actor.revision,
            subject_kind=expectation.subject_key,
            priority=expectation.priority,
            opened_by=crew.node,
            is_request=crew.permits.wakes.is_given and not crew.permits.runs.is_given,
            start_by=crew.clock.now() + timedelta(seconds=within_s) if within_s else None,
        )

    async def is_open(self, opened: EpisodeOpened) -> bool:
        """Return whether the episode has been opened.

        Raises:
            Unavailable: the log is away.
        """
        return await self.is_begun(opened) is not None

    async def is_begun(self, opened: EpisodeOpened) -> bool | None:
        """Return whether a node has begun the episode, or ended it; None if it is not open.

        Raises:
            Unavailable: the log is away.
        """
        try:
            newest = await self._newest(opened.episode_id)
        except UnreadableEvent:  # Of a newer version, but there.
            return True
        return None if newest is None else placing.untouched(newest) is None

    async def may_lack_call(self, episode_id: str) -> bool:
        """Return whether an episode is open, and nobody may have been called to what is left of it.

        Nobody is called to one that was only opened, or that was opened and ended by one commit,
        before its node has done so. Whatever else has become of an episode was begun with a claim,
        whose lapse calls.

        Raises:
            Unavailable: the log is away.
        """
        try:
            newest = await self._newest(episode_id)
        except UnreadableEvent:  # Of a newer version, whose nodes know.
            return True
        if newest is None:
            return False
        kinds = {type(event) for event in newest.commit.events}
        return placing.untouched(newest) is not None or kinds >= {EpisodeOpened, EpisodeFinished}

    async def look_later(self, opened: EpisodeOpened) -> None:
        """Have a node look for the episode once nothing can be on its way to the journal any more.

        Raises:
            Unavailable: the log is away. Asking for it again is harmless.
        """
        crew = self.crew
        timer = Timer(actor=crew.actor.id, purpose=BELATED, key=opened.episode_id, payload={})
        await crew.ports.timers.arm(timer, at=crew.clock.now() + timedelta(seconds=BELATED_S))

    async def _newest(self, episode_id: str) -> Recorded | None:
        return await self.crew.ports.log.last(self.crew.ports.stack.episode(episode_id))
