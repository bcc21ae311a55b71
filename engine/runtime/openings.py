"""What a cause would open, and what has become of it since: openings by what caused them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from engine import dedupe, placing
from engine.expectation import Expectation
from engine.runtime.crew import Crew
from streams.errors import UnreadableEvent
from streams.events import EpisodeOpened
from streams.triggers import Trigger


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
        subject = self.crew.ports.stack.episode(opened.episode_id)
        try:
            newest = await self.crew.ports.log.last(subject)
        except UnreadableEvent:  # Of a newer version, but there.
            return True
        return None if newest is None else placing.untouched(newest) is None
