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

from engine import dedupe, telemetry
from engine.runtime.arbiter import Arbiter, rejected
from engine.runtime.backoff import backoff_s
from engine.runtime.crew import Crew
from engine.runtime.hands import Hands
from engine.runtime.intake import taking
from engine.runtime.keeper import Keeper
from engine.runtime.opener import open_episode
from engine.runtime.receipt import Receipt
from engine.runtime.shift import Shift
from engine.runtime.slots import Slots
from engine.runtime.undertaker import Undertaker
from streams.delivery import Delivery, Unreadable
from streams.errors import TooLarge, Unavailable, UnreadableEvent, Unwritable
from streams.events import EpisodeOpened
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
    _strange: set[str] = field(default_factory=set)
    """Names that were logged. The queue holds no others than some version watches."""
    _arbiter: Arbiter = field(init=False)

    def __post_init__(self) -> None:
        self._arbiter = Arbiter(self.crew)

    async def serve(self) -> None:
        """Rule on the actor's events until the node stops. What they opened here goes on.

        Raises:
            Unavailable: the actor's queue could not be opened.
        """
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
        parts = [content] if isinstance(content, Unreadable) else await self._arbiter.rule(content)
        if not parts:
            return await delivery.ack()
        self._room.try_take()
        receipt = Receipt(delivery, parts=len(parts), room=self._room)
        for part in parts:
            self.hands.start(
                self._bury(part, receipt)
                if isinstance(part, Unreadable)
                else self._open(part, receipt)
            )
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

    async def _bury(self, content: Unreadable, receipt: Receipt) -> None:
        with receipt:
            try:
                await self.undertaker.bury(content, actor_id=self.crew.actor.id)
            except Unavailable as error:
                await self._hand_back(receipt, error)
            else:
                await receipt.part_done()

    async def _open(self, opened: EpisodeOpened, receipt: Receipt) -> None:
        """Open an episode, and run it if there is room."""
        with receipt, telemetry.span("gate", context_of(receipt.delivery.trace)):
            try:
                if await self._is_known(opened, receipt):
                    self._arbiter.note_duplicate(opened)
                elif await self._run_here(opened, receipt):
                    return
                else:
                    await self._queue(opened, receipt.delivery.content)
            except Unavailable as error:
                await self._hand_back(receipt, error)
            else:
                await receipt.part_done()

    async def _is_known(self, opened: EpisodeOpened, receipt: Receipt) -> bool:
        """Return whether another event has opened the episode.

        Whoever shares a key is looked for first, so that no code of an episode runs in vain for
        every duplicate. What is missing after a crash, the other event makes good when it comes
        again; so this one need not, unless it comes again itself and may be the one.
        """
        is_own = opened.dedupe_key == dedupe.event_key(receipt.delivery.content)
        if is_own or receipt.delivery.deliveries > 1:
            return False
        subject = self.crew.ports.stack.episode(opened.episode_id)
        try:
            return await self.crew.ports.log.last(subject) is not None
        except UnreadableEvent:  # Of a newer version, but there.
            return True

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
            reason = "too_large" if isinstance(error, TooLarge) else "unwritable"
            letter = rejected(event, self.crew.ports.stack, reason=reason, detail=str(error))
            await self.undertaker.bury(letter, actor_id=opened.actor_id)
        else:
            if not is_new:
                self._arbiter.note_duplicate(opened)

    async def _hand_back(self, receipt: Receipt, error: Unavailable) -> None:
        log.warning("event handed back", actor=self.crew.actor.id, error=str(error))
        await receipt.hand_back(delay_s=HAND_BACK_S)


async def _leave(delivery: Incoming) -> None:
    """Let the event come again, to any node, later each time."""
    delay_s = backoff_s(delivery.deliveries, first_s=STRANGE_S, most_s=STRANGE_MAX_S)
    await delivery.nak(delay_s=delay_s)
