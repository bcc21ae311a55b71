"""Brings word from outside to the episodes that wait for it: take → find → send → acknowledge.

All nodes share one queue of the events that say so, whatever actors they run. Word that nobody
waits for is put by: whoever begins to wait within an hour finds it, and a timer has the lookout
look for them. So the queue holds none of it, however much there is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog

from engine import telemetry
from engine.backoff import backoff_s
from engine.errors import BadRequest
from engine.resolving import RESOLVED, Kept, PutBy, word_in
from engine.runtime.intake import taking
from engine.runtime.lookout import QUEUE, letter, put_by
from engine.runtime.permit import Permit
from engine.runtime.undertaker import Undertaker
from engine.runtime.waiters import bring, find_waiters, is_brought, keep
from streams.delivery import Delivery, Unreadable
from streams.errors import Unavailable
from streams.json import raw
from streams.ports import Ports
from streams.world import DomainEvent

IN_FLIGHT_MAX: Final = 64
"""Events worked on at a time."""

WAIT_S: Final = 5.0
"""Longest silent wait for events; only how often an idle resolver looks up."""

AGAIN_S: Final = 0.25
"""First wait before word comes again because the log was away; doubles each time."""

AGAIN_MAX_S: Final = 15.0
"""Longest such wait."""

LOOKS_MIN: Final = 2
"""How often it is looked who waits, at least: a replica may lack who was put there just before."""

LAG_S: Final = 2.0
"""Between the two looks, in seconds: longer than any replica lags."""

Incoming: TypeAlias = Delivery[DomainEvent | Unreadable]

log = structlog.get_logger("vigil.resolver")


@dataclass(frozen=True)
class Resolver:
    """The resolver of one node."""

    ports: Ports
    undertaker: Undertaker
    permit: Permit
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open: whatever is said from then on is brought."""

    async def serve(self) -> None:
        """Take what is said for as long as the node may run anything.

        Raises:
            Unavailable: the queue could not be opened.
        """
        opening, withdrawn = self.ports.world.open(QUEUE, [RESOLVED]), self.permit.withdrawn
        async with taking(opening, stopping=withdrawn) as source:
            self.is_open.set()
            while not withdrawn.is_set():
                batch = await source.receive(room=IN_FLIGHT_MAX, wait_s=WAIT_S)
                await asyncio.gather(*map(self._answer, batch))
                telemetry.backlog.set(source.pending, {"queue": "waits"})

    async def _answer(self, delivery: Incoming) -> None:
        try:
            await self._bring(delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            await _again(delivery)

    async def _bring(self, delivery: Incoming) -> None:
        content = delivery.content
        if isinstance(content, Unreadable):
            return await self._bury(content, delivery)
        try:
            said = word_in(content)
        except BadRequest as error:
            return await self._bury(_unreadable(self.ports, content, str(error)), delivery)
        # Before it looks who waits: whoever is not found then looks for this.
        await keep(self.ports, said, at=delivery.at)
        waiters = await find_waiters(self.ports, said.ref)
        if not waiters and await is_brought(self.ports, said):
            return await delivery.ack()
        if not waiters:
            kept = Kept(word=said, at=delivery.at)
            await put_by(self.ports, PutBy(kept=kept, seq=content.seq), after=delivery.at)
            return await delivery.ack()
        await bring(self.ports, said, waiters)
        log.info("word brought", ref=said.ref, by=said.by, episodes=len(waiters))
        if delivery.deliveries < LOOKS_MIN:
            return await delivery.nak(delay_s=LAG_S)
        return await delivery.ack()

    async def _bury(self, letter: Unreadable, delivery: Incoming) -> None:
        await self.undertaker.bury(letter, actor_id="")
        await delivery.term(letter.reason)


def _unreadable(ports: Ports, event: DomainEvent, detail: str) -> Unreadable:
    data = bytes(raw(event.payload))
    return letter(ports, reason="unreadable", detail=detail, seq=event.seq, data=data)


async def _again(delivery: Incoming) -> None:
    """Let word come again, later each time."""
    delay_s = backoff_s(delivery.deliveries, first_s=AGAIN_S, most_s=AGAIN_MAX_S)
    await delivery.nak(delay_s=delay_s)
