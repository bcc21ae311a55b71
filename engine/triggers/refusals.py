"""What becomes of a refusal: it is noted for people, in the background.

Nothing waits for that, and a crash may lose the latest second of it
(docs/adr/0069-refusals-are-kept-for-a-day.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.app.actor import Expectation
from engine.app.dedupe import event_key
from engine.app.triggers import entity_id
from engine.app.workflow_plan import START_EXPECTATION, starter_id
from engine.runtime.context import ActorContext
from engine.triggers.rules import Opening, id_of
from engine.workflows.start import InstanceStart
from streams.model.refusals import TICK, AgainstEpisode, Comparison, Refusal, cut
from streams.model.triggers import EventTrigger, ScheduleTrigger
from streams.ports.domain_events import DomainEvent

NOT_WATCHED: Final = "not_watched"
"""Reason that is counted, and not kept: the event is none of this expectation's."""

DUPLICATE: Final = "duplicate"
"""Reason of what opens no episode, because one of the same cause is there."""


@dataclass(frozen=True)
class RefusalNotes:
    """Notes the refusals of one actor on one node."""

    context: ActorContext

    def note_event(
        self, event: DomainEvent, expectation: Expectation, reason: str, against: Comparison | None
    ) -> None:
        """Note that `event` does not fire `expectation`, before an episode was thought of."""
        if reason == NOT_WATCHED:  # guard: unwatched-event-not-kept
            return
        self._put(
            Refusal(
                event_id=event.id,
                event=event.name,
                actor=self.context.actor.id,
                expectation=expectation.name,
                subject=cut(entity_id(event.payload, expectation.subject_key)),
                at=self._now,
                node=self.context.node,
                reason=reason,
                against=against,
            )
        )

    def note(self, opened: Opening, reason: str, against: Comparison | None = None) -> None:
        """Note why `opened` is not opened. What people fire is on the journal."""
        refusal = refusal_of(opened, reason, against, at=self._now, node=self.context.node)
        if refusal is not None:
            self._put(refusal)

    def note_duplicate(self, opened: Opening) -> None:
        """Note that another event has opened this; nothing if this one may have."""
        trigger = opened.trigger
        # guard: repeated-event-no-duplicate
        if isinstance(trigger, EventTrigger) and opened.dedupe_key != event_key(trigger.event_id):
            key, is_start = cut(opened.dedupe_key), isinstance(opened, InstanceStart)
            names = {"instance_id" if is_start else "episode_id": id_of(opened)}
            self.note(opened, DUPLICATE, AgainstEpisode(**names, dedupe_key=key))

    def _put(self, refusal: Refusal) -> None:
        self.context.refusals.put((refusal.actor, refusal.expectation), refusal)

    @property
    def _now(self) -> datetime:
        return self.context.clock.now()


def refusal_of(
    opened: Opening, reason: str, against: Comparison | None, *, at: datetime, node: str
) -> Refusal | None:
    """Return why `opened` is not opened; None if neither an event nor a tick wanted it."""
    match opened.trigger:
        case EventTrigger(event_id=event_id, event_type=name):
            cause = event_id, name
        case ScheduleTrigger():
            cause = opened.dedupe_key, TICK
        case _:
            return None
    if isinstance(opened, InstanceStart):
        actor, expectation = starter_id(opened.workflow), START_EXPECTATION
    else:
        actor, expectation = opened.actor_id, opened.expectation_id
    return Refusal(
        event_id=cause[0],
        event=cause[1],
        actor=actor,
        expectation=expectation,
        subject=cut(opened.trigger.entity_id),
        at=at,
        node=node,
        reason=reason,
        against=against,
    )
