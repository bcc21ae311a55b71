"""Rules on domain events for one actor: which episodes each opens, with every reason counted.

The rules are `engine.gating`'s and the keys `engine.dedupe`'s. Added here is what they may not do:
call what a user wrote, count, and say a likely mistake once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine import dedupe, gating, telemetry
from engine.actor import Expectation
from engine.errors import EpisodeFailed
from engine.runtime.crew import Crew
from engine.runtime.usercode import call
from streams.delivery import Unreadable
from streams.events import EpisodeOpened, EventTrigger
from streams.json import raw
from streams.subjects import Stack, Stream
from streams.world import DomainEvent

MISTAKES: Final[Mapping[str, str]] = {
    "filter_key_missing": "event lacks a key that the filter needs; it does not fire",
    "filter_type": "event has a value that the filter cannot compare; it does not fire",
}
"""Reasons of refusals that may be a mistake, and what is said the first time."""

DEDUPE_FAILED: Final = "dedupe_failed"
"""Reason of a dead letter, counted as a ruling, too: a user's function gave the event no key."""

log = structlog.get_logger("vigil.gate")


@dataclass
class Arbiter:
    """The rulings of one actor on one node."""

    crew: Crew
    _warned: set[tuple[str, ...]] = field(default_factory=set)

    async def rule(self, event: DomainEvent) -> list[EpisodeOpened | Unreadable]:
        """Return what becomes of `event`, for each expectation that it fires.

        That is an episode to be opened; or the event as a message to be buried, if what a user
        wrote gives it no key.
        """
        stack, actor = self.crew.ports.stack.name, self.crew.actor
        parts = []
        for expectation in actor.expectations.values():
            ruling = gating.rule(expectation, event, stack=stack, actor=actor.id)
            match ruling:
                case gating.Fire(trigger=fired):
                    parts.append(await self._fired(expectation, fired, event))
                case gating.Refuse():
                    self._refused(ruling, expectation, event)
        return parts

    def note_duplicate(self, opened: EpisodeOpened) -> None:
        """Count an episode that was not opened because it had been."""
        self._count("duplicate", self.crew.actor.expectations[opened.expectation_id])

    async def _fired(
        self, expectation: Expectation, fired: EventTrigger, event: DomainEvent
    ) -> EpisodeOpened | Unreadable:
        try:
            key = await call(dedupe.key_of, expectation.dedupe, event)
        except EpisodeFailed as failed:
            self._count(DEDUPE_FAILED, expectation)
            detail = f"expectation {expectation.name!r}: {failed.detail}"
            return rejected(event, self.crew.ports.stack, reason=DEDUPE_FAILED, detail=detail)
        self._count("fire", expectation)
        return self._opening(expectation, fired, key)

    def _opening(
        self, expectation: Expectation, fired: EventTrigger, dedupe_key: str
    ) -> EpisodeOpened:
        actor = self.crew.actor
        episode_id = dedupe.episode_id(
            stack=self.crew.ports.stack.name,
            actor=actor.id,
            expectation=expectation.name,
            dedupe_key=dedupe_key,
        )
        return EpisodeOpened(
            episode_id=episode_id,
            actor_id=actor.id,
            expectation_id=expectation.name,
            trigger=fired,
            dedupe_key=dedupe_key,
            budget=expectation.budget,
            spec_rev=actor.spec_rev,
            subject_kind=expectation.subject_key,
        )

    def _refused(
        self, refusal: gating.Refuse, expectation: Expectation, event: DomainEvent
    ) -> None:
        self._count(refusal.reason, expectation)
        place = (expectation.name, refusal.reason, refusal.detail)
        if refusal.reason in MISTAKES and place not in self._warned:
            self._warned.add(place)
            log.warning(
                MISTAKES[refusal.reason],
                actor=self.crew.actor.id,
                expectation=expectation.name,
                key=refusal.detail,
                event_id=event.id,
                further="counted, not logged",
            )

    def _count(self, reason: str, expectation: Expectation) -> None:
        telemetry.gate_rulings.add(
            1, {"actor": self.crew.actor.id, "expectation": expectation.name, "reason": reason}
        )


def rejected(event: DomainEvent, stack: Stack, *, reason: str, detail: str) -> Unreadable:
    """Return `event` as a message that cannot be worked on, to be buried."""
    return Unreadable(
        reason=reason,
        detail=detail,
        stream=stack.stream(Stream.EVENTS),
        seq=event.seq,
        subject=stack.event(event.name),
        headers={},
        data=bytes(raw(event.payload)),
    )
