"""Turns domain events into episodes: follow → rule → open → run here or send → acknowledge.

One gate per actor and node; all gates of an actor share one durable queue. An episode's id
comes from its cause, so a redelivered event opens nothing new, and whatever a crash left
half done is done again harmlessly.

A node that has room for an episode runs it at once: its first commit opens it and starts it, and
only then is the event acknowledged (docs/adr/0017-opened-here-runs-here.md). Otherwise the episode
is opened and queued for whoever has room.

The shared queue holds what any version of the actor watches. So an event that this node's
version knows nothing of is left to a newer node, or to an older one, and is refused only when
none has taken it for long.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import dedupe, telemetry, trigger
from engine.actor import Expectation
from engine.runtime.backoff import backoff_s
from engine.runtime.hands import Hands
from engine.runtime.intake import taking
from engine.runtime.keeper import Keeper
from engine.runtime.opener import open_episode
from engine.runtime.receipt import Receipt
from engine.runtime.shift import Shift
from engine.runtime.slots import Slots
from engine.runtime.tenure import Crew
from engine.runtime.undertaker import Undertaker
from streams.delivery import Delivery, Unreadable
from streams.errors import TooLarge, Unavailable, Unwritable
from streams.events import EpisodeOpened, EventTrigger
from streams.json import raw
from streams.subjects import Stream
from streams.tracing import context_of
from streams.world import DomainEvent

EVENTS_IN_FLIGHT_MAX: Final = 256
"""Events of one gate that may be unanswered at a time."""

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


Incoming: TypeAlias = Delivery[DomainEvent | Unreadable]


@dataclass
class Gate:
    """The gate of one actor on one node."""

    crew: Crew
    keeper: Keeper
    undertaker: Undertaker
    hands: Hands
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open: whatever is published from then on is ruled on."""
    _room: Slots = field(default_factory=lambda: Slots(EVENTS_IN_FLIGHT_MAX))
    _warned: set[tuple[str, str]] = field(default_factory=set)
    _strange: set[str] = field(default_factory=set)
    """Names that were logged. The queue holds no others than some version watches."""

    async def serve(self) -> None:
        """Rule on the actor's events until the node stops and what they opened here was left.

        Cancelled, it ends at once what runs.

        Raises:
            Unavailable: the actor's queue could not be opened. What runs goes on.
        """
        async with self.hands.cut_off_when_cancelled():
            await self._take_events()
            await self.hands.finish()

    async def _take_events(self) -> None:
        actor = self.crew.actor
        labels = {"actor": actor.id, "queue": "events"}
        opening = self.crew.ports.world.open(actor.id, actor.event_names())
        async with taking(opening, stopping=self.crew.stopping) as source:
            self.is_open.set()
            while not self.crew.stopping.is_set():
                room = await self._room.wait_free()
                for delivery in await source.receive(room=room, wait_s=WAIT_S):
                    await self._admit(delivery)
                telemetry.backlog.set(source.pending, labels)

    async def _admit(self, delivery: Incoming) -> None:
        """Answer for an event at once if it opens nothing; else begin to open its episodes."""
        content = delivery.content
        if self._is_left_to_others(delivery):
            return await _leave(delivery)
        opened: list[EpisodeOpened] = []
        if not isinstance(content, Unreadable):
            opened = self._rule(content)
            if not opened:
                return await delivery.ack()
        self._room.try_take()
        receipt = Receipt(delivery, parts=len(opened) or 1, room=self._room)
        if isinstance(content, Unreadable):
            return self.hands.start(self._bury(content, receipt))
        for one in opened:
            self.hands.start(self._open(one, content, receipt))
        return None

    def _is_left_to_others(self, delivery: Incoming) -> bool:
        """Return whether an event is for a node with another version of the actor, and say so."""
        content, actor = delivery.content, self.crew.actor
        if isinstance(content, Unreadable) or content.name in actor.event_names():
            return False
        if content.name not in self._strange:
            self._strange.add(content.name)
            log.warning(
                "event handed back: the actor here does not watch it; another node's may",
                actor=actor.id,
                event_name=content.name,
                event_id=content.id,
                further="counted as not_watched when it is refused, not logged",
            )
        return delivery.deliveries < STRANGE_DELIVERIES_MAX

    def _rule(self, event: DomainEvent) -> list[EpisodeOpened]:
        """Return the episodes that `event` opens, one for each expectation that it fires."""
        opened = []
        for expectation in self.crew.actor.expectations.values():
            ruling = trigger.rule(expectation.on, event, subject_key=expectation.subject_key)
            match ruling:
                case trigger.Fire(trigger=fired):
                    self._count("fire", expectation)
                    opened.append(self._opening(expectation, fired, dedupe.event_key(event)))
                case trigger.Refuse():
                    self._refused(ruling, expectation, event)
        return opened

    async def _bury(self, content: Unreadable, receipt: Receipt) -> None:
        with receipt:
            try:
                await self.undertaker.bury(content, actor_id=self.crew.actor.id)
            except Unavailable as error:
                await self._hand_back(receipt, error)
            else:
                await receipt.part_done()

    async def _open(self, opened: EpisodeOpened, event: DomainEvent, receipt: Receipt) -> None:
        """Open an episode, and run it if there is room."""
        with receipt, telemetry.span("gate", context_of(receipt.delivery.trace)):
            try:
                if await self._run_here(opened, receipt):
                    return
                await self._queue(opened, event)
            except Unavailable as error:
                await self._hand_back(receipt, error)
            else:
                await receipt.part_done()

    async def _run_here(self, opened: EpisodeOpened, receipt: Receipt) -> bool:
        """Run an episode that its first commit opens, if there is room; return whether we did.

        An event that comes again may have crashed a node: its episode is opened first and alone,
        so that crashes are counted.
        """
        is_first_try = receipt.delivery.deliveries == 1 and not self.crew.stopping.is_set()
        if not is_first_try or not self.crew.slots.try_take():
            return False
        try:
            with (
                bound_contextvars(episode_id=opened.episode_id, actor=opened.actor_id),
                telemetry.span("episode"),
            ):
                return await Shift(self.crew, self.keeper, receipt.part_done).open(opened)
        finally:
            self.crew.slots.give_back()

    async def _queue(self, opened: EpisodeOpened, event: DomainEvent) -> None:
        """Open an episode for any node, or a dead letter if the journal cannot keep it."""
        try:
            is_new = await open_episode(self.crew.ports, opened, at=self.crew.clock.now())
        # Numbers and text may need more room than they came in.
        except (TooLarge, Unwritable) as error:
            stack = self.crew.ports.stack
            message = Unreadable(
                reason="too_large" if isinstance(error, TooLarge) else "unwritable",
                detail=str(error),
                stream=stack.stream(Stream.EVENTS),
                seq=event.seq,
                subject=stack.event(event.name),
                headers={},
                data=bytes(raw(event.payload)),
            )
            await self.undertaker.bury(message, actor_id=opened.actor_id)
        else:
            if not is_new:
                self._count("duplicate", self.crew.actor.expectations[opened.expectation_id])

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

    async def _hand_back(self, receipt: Receipt, error: Unavailable) -> None:
        log.warning("event handed back", actor=self.crew.actor.id, error=str(error))
        await receipt.hand_back(delay_s=HAND_BACK_S)

    def _refused(
        self, refusal: trigger.Refuse, expectation: Expectation, event: DomainEvent
    ) -> None:
        self._count(refusal.reason, expectation)
        place = (expectation.name, refusal.detail)
        if refusal.reason == "filter_key_missing" and place not in self._warned:
            self._warned.add(place)
            log.warning(
                "event lacks a key that the filter needs; it does not fire",
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


async def _leave(delivery: Incoming) -> None:
    """Let the event come again, to any node, later each time."""
    delay_s = backoff_s(delivery.deliveries, first_s=STRANGE_S, most_s=STRANGE_MAX_S)
    await delivery.nak(delay_s=delay_s)
