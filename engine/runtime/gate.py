"""Takes an actor's events, from one queue: follow → rule → admit.

All gates of an actor on all nodes share one durable queue per stream of events. The queue of the
stack's own events holds what any version of the actor watches. So an event that this node's
version knows nothing of is left to a newer node, or to an older one, and is refused only when none
has taken it for long, or when the queue is not for it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog

from engine import telemetry
from engine.backoff import backoff_s
from engine.runtime.entrance import Entrance
from engine.runtime.intake import taking
from engine.runtime.watch_list import WatchList
from streams.delivery import Delivery, Source, Unreadable
from streams.world import DomainEvent

WAIT_S: Final = 5.0
"""Longest silent wait for events; only how often an idle gate looks up. Half of `ACK_WAIT_S`:
what arrives is counted from when it was asked for, so at least the other half is left for it."""

STRANGE_S: Final = 0.25
"""First wait before an event comes again that no expectation here watches; doubles each time."""

STRANGE_MAX_S: Final = 5.0
"""Longest such wait."""

STRANGE_DELIVERIES_MAX: Final = 123
"""Deliveries of such an event before it is refused: about 10 minutes, which is longer than a
deploy takes to bring a node that watches it."""

log = structlog.get_logger("vigil.gate")

Incoming: TypeAlias = Delivery[DomainEvent | Unreadable]
Opening: TypeAlias = Callable[[], Awaitable[Source[DomainEvent | Unreadable]]]


@dataclass
class Gate:
    """The gate of one actor, for one stream, on one node."""

    entrance: Entrance
    opening: Opening
    """Opens the queue."""
    queue: str
    """What the queue is called in metrics: `events`, or the name of a stream."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open: whatever is published from then on is ruled on."""
    _strange: set[str] = field(default_factory=set)
    """Names that were logged. The queue holds no others than some version watches."""
    _watch_list: WatchList = field(init=False)

    def __post_init__(self) -> None:
        crew = self.entrance.crew
        self._watch_list = WatchList(crew.ports.world, crew.clock, crew.actor.id)

    async def serve(self) -> None:
        """Rule on the actor's events for as long as the node may. What they opened here goes on.

        Raises:
            Unavailable: the actor's queue could not be opened.
        """
        crew = self.entrance.crew
        labels = {"actor": crew.actor.id, "queue": self.queue}
        withdrawn = crew.permits.wakes.withdrawn
        async with taking(self.opening(), stopping=withdrawn) as source:
            self.is_open.set()
            while not withdrawn.is_set():
                room = await self.entrance.room.wait_free()
                asked_s = crew.clock.monotonic_s()
                for delivery in await source.receive(room=room, wait_s=WAIT_S):
                    if withdrawn.is_set():
                        await delivery.nak()
                    else:
                        await self._admit(delivery, asked_s)
                telemetry.backlog.set(source.pending, labels)

    async def _admit(self, delivery: Incoming, asked_s: float) -> None:
        content = delivery.content
        if isinstance(content, Unreadable):
            return await self.entrance.let_in(delivery, [content], since_s=asked_s)
        if self._is_strange(content) and not await self._is_hopeless(delivery, content):
            return await leave(delivery)
        is_repeat = delivery.deliveries > 1
        parts = await self.entrance.arbiter.rule(content, is_repeat=is_repeat)
        return await self.entrance.let_in(delivery, parts, since_s=asked_s)

    def _is_strange(self, event: DomainEvent) -> bool:
        """Return whether an event is for a node with another version of the actor, and say so."""
        actor = self.entrance.crew.actor
        if event.stream or event.name in actor.event_names():
            return False
        if event.name not in self._strange:
            self._strange.add(event.name)
            log.warning(
                "event handed back: the actor here does not watch it; another node's may",
                actor=actor.id,
                event_name=event.name,
                event_id=event.id,
                further="counted as not_watched when it is refused, not logged",
            )
        return True

    async def _is_hopeless(self, delivery: Incoming, event: DomainEvent) -> bool:
        """Return whether no other node will take an event, either."""
        is_old = delivery.deliveries >= STRANGE_DELIVERIES_MAX
        return is_old or await self._watch_list.is_gone(event.name)


async def leave(delivery: Delivery[object]) -> None:
    """Let a message come again, to any node, later each time."""
    delay_s = backoff_s(delivery.deliveries, first_s=STRANGE_S, most_s=STRANGE_MAX_S)
    await delivery.nak(delay_s=delay_s)
