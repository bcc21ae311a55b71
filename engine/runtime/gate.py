"""Turns domain events into episodes: follow → rule → open → send → acknowledge.

One gate per actor and node; all gates of an actor share one durable queue. An episode's id
comes from its cause, so a redelivered event opens nothing new, and whatever a crash left
half done is done again harmlessly.

The shared queue holds what any version of the actor watches. So an event that this node's
version knows nothing of is left to a newer node, or to an older one, and is refused only when
none has taken it for long.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine import dedupe, telemetry, trigger
from engine.actor import Actor, Expectation
from engine.runtime.backoff import backoff_s
from engine.runtime.intake import taking
from engine.runtime.opener import open_episode
from engine.runtime.undertaker import Undertaker
from streams.clock import Clock
from streams.delivery import Delivery, Unreadable
from streams.errors import TooLarge, Unavailable, Unwritable
from streams.events import EpisodeOpened, EventTrigger
from streams.json import raw
from streams.ports import Ports
from streams.subjects import Stream
from streams.tracing import context_of
from streams.world import DomainEvent

EVENTS_IN_FLIGHT_MAX: Final = 256
"""Events that one gate rules on at a time."""

WAIT_S: Final = 5.0
"""Longest silent wait for events; only how often an idle gate looks up."""

HAND_BACK_S: Final = 1.0
"""How long an event waits that could not be ruled on because the log was away."""

STRANGE_S: Final = 0.25
"""First wait before an event comes again that no expectation here watches; doubles each time."""

STRANGE_MAX_S: Final = 5.0
"""Longest such wait."""

STRANGE_DELIVERIES_MAX: Final = 123
"""Deliveries of such an event before it is refused: about 10 minutes, which is longer than a
deploy takes to bring a node that watches it."""

log = structlog.get_logger("vigil.gate")


@dataclass
class Gate:
    """The gate of one actor on one node."""

    ports: Ports
    actor: Actor
    clock: Clock
    stopping: asyncio.Event
    undertaker: Undertaker
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open: whatever is published from then on is ruled on."""
    _warned: set[tuple[str, str]] = field(default_factory=set)
    _strange: set[str] = field(default_factory=set)
    """Names that were logged. The queue holds no others than some version watches."""

    async def serve(self) -> None:
        """Rule on the actor's events until the node stops.

        Raises:
            Unavailable: the actor's queue could not be opened.
        """
        labels = {"actor": self.actor.id, "queue": "events"}
        opening = self.ports.world.open(self.actor.id, self.actor.event_names())
        async with taking(opening, stopping=self.stopping) as source:
            self.is_open.set()
            while not self.stopping.is_set():
                batch = await source.receive(room=EVENTS_IN_FLIGHT_MAX, wait_s=WAIT_S)
                telemetry.backlog.set(source.pending, labels)
                await asyncio.gather(*(self._admit(delivery) for delivery in batch))

    async def _admit(self, delivery: Delivery[DomainEvent | Unreadable]) -> None:
        with telemetry.tracer.start_as_current_span("gate", context_of(delivery.trace)):
            if self._is_left_to_others(delivery):
                return await _leave(delivery)
            try:
                await self._rule(delivery.content)
            except Unavailable as error:
                log.warning("event handed back", actor=self.actor.id, error=str(error))
                await delivery.nak(delay_s=HAND_BACK_S)
            else:
                await delivery.ack()

    def _is_left_to_others(self, delivery: Delivery[DomainEvent | Unreadable]) -> bool:
        """Return whether an event is for a node with another version of the actor, and say so."""
        content = delivery.content
        if isinstance(content, Unreadable) or content.name in self.actor.event_names():
            return False
        if content.name not in self._strange:
            self._strange.add(content.name)
            log.warning(
                "event handed back: the actor here does not watch it; another node's may",
                actor=self.actor.id,
                event_name=content.name,
                event_id=content.id,
                further="counted as not_watched when it is refused, not logged",
            )
        return delivery.deliveries < STRANGE_DELIVERIES_MAX

    async def _rule(self, content: DomainEvent | Unreadable) -> None:
        if isinstance(content, Unreadable):
            await self.undertaker.bury(content, actor_id=self.actor.id)
            return
        for expectation in self.actor.expectations.values():
            ruling = trigger.rule(expectation.on, content, subject_key=expectation.subject_key)
            match ruling:
                case trigger.Fire(trigger=fired):
                    await self._fire(expectation, fired, content)
                case trigger.Refuse():
                    self._refused(ruling, expectation, content)

    async def _fire(
        self, expectation: Expectation, fired: EventTrigger, event: DomainEvent
    ) -> None:
        self._count("fire", expectation)
        try:
            await self._open(expectation, fired, dedupe.event_key(event))
        # Numbers and text may need more room than they came in.
        except (TooLarge, Unwritable) as error:
            stack = self.ports.stack
            message = Unreadable(
                reason="too_large" if isinstance(error, TooLarge) else "unwritable",
                detail=str(error),
                stream=stack.stream(Stream.EVENTS),
                seq=event.seq,
                subject=stack.event(event.name),
                headers={},
                data=bytes(raw(event.payload)),
            )
            await self.undertaker.bury(message, actor_id=self.actor.id)

    async def _open(self, expectation: Expectation, fired: EventTrigger, dedupe_key: str) -> None:
        episode_id = dedupe.episode_id(
            stack=self.ports.stack.name,
            actor=self.actor.id,
            expectation=expectation.name,
            dedupe_key=dedupe_key,
        )
        opened = EpisodeOpened(
            episode_id=episode_id,
            actor_id=self.actor.id,
            expectation_id=expectation.name,
            trigger=fired,
            dedupe_key=dedupe_key,
            budget=expectation.budget,
            spec_rev=self.actor.spec_rev,
            subject_kind=expectation.subject_key,
        )
        if not await open_episode(self.ports, opened, at=self.clock.now()):
            self._count("duplicate", expectation)

    def _refused(
        self, refusal: trigger.Refuse, expectation: Expectation, event: DomainEvent
    ) -> None:
        self._count(refusal.reason, expectation)
        place = (expectation.name, refusal.detail)
        if refusal.reason == "filter_key_missing" and place not in self._warned:
            self._warned.add(place)
            log.warning(
                "event lacks a key that the filter needs; it does not fire",
                actor=self.actor.id,
                expectation=expectation.name,
                key=refusal.detail,
                event_id=event.id,
                further="counted, not logged",
            )

    def _count(self, reason: str, expectation: Expectation) -> None:
        telemetry.gate_rulings.add(
            1, {"actor": self.actor.id, "expectation": expectation.name, "reason": reason}
        )


async def _leave(delivery: Delivery[DomainEvent | Unreadable]) -> None:
    """Let the event come again, to any node, later each time."""
    delay_s = backoff_s(delivery.deliveries, first_s=STRANGE_S, most_s=STRANGE_MAX_S)
    await delivery.nak(delay_s=delay_s)
