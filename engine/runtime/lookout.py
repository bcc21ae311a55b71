"""Looks now and then who waits for word that nobody has had: due → find → send, or put by again.

Whoever begins to wait looks for such word themselves, and finds the newest of their reference. The
lookout brings what is older than that, or what a replica hid from them, and buries what nobody has
waited for in an hour.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from engine.resolving import RESOLVED, PutBy, look_at, put_by_in
from engine.runtime.intake import taking
from engine.runtime.permit import Permit
from engine.runtime.undertaker import Undertaker
from engine.runtime.waiters import bring, find_waiters, is_brought
from streams.delivery import Delivery, Unreadable
from streams.errors import Unavailable
from streams.json import raw, unraw
from streams.ports import Ports
from streams.timers import Due, Timer

QUEUE: Final = "-waits"
"""Whose queues word is in: nobody's actor. One of this name would share them."""

WORD: Final = "word"
"""Purpose of the timers that have word looked at. The key is the word's id."""

IN_FLIGHT_MAX: Final = 64
"""Words looked at at a time."""

WAIT_S: Final = 5.0
"""Longest silent wait for what is due; only how often an idle lookout looks up."""

AGAIN_S: Final = 5.0
"""How long word waits that could not be looked at now, in seconds."""

STRANGE_DELIVERIES_MAX: Final = 120
"""Deliveries of what this version cannot read before it is a dead letter: about 10 minutes, which
is longer than a deploy takes to bring a node that can."""

NOBODY_WAITS: Final = "nobody_waits"
"""Reason of a dead letter."""

log = structlog.get_logger("vigil.resolver")


@dataclass(frozen=True)
class Lookout:
    """The lookout of one node."""

    ports: Ports
    undertaker: Undertaker
    permit: Permit
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open."""

    async def serve(self) -> None:
        """Look at what is due for as long as the node may run anything.

        Raises:
            Unavailable: the queue could not be opened.
        """
        opening, withdrawn = self.ports.timers.open(QUEUE), self.permit.withdrawn
        async with taking(opening, stopping=withdrawn) as source:
            self.is_open.set()
            while not withdrawn.is_set():
                batch = await source.receive(room=IN_FLIGHT_MAX, wait_s=WAIT_S)
                await asyncio.gather(*map(self._answer, batch))

    async def _answer(self, delivery: Delivery[Due | Unreadable]) -> None:
        try:
            await self._look(delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            await delivery.nak(delay_s=AGAIN_S)

    async def _look(self, delivery: Delivery[Due | Unreadable]) -> None:
        due = delivery.content
        if isinstance(due, Unreadable):
            return await self._bury(due, delivery)
        found = put_by_in(due.payload)
        if found is None and delivery.deliveries < STRANGE_DELIVERIES_MAX:
            return await delivery.nak(delay_s=AGAIN_S)
        if found is None:
            return await self._bury(_strange(self.ports, due, delivery), delivery)
        said = found.kept.word
        if await is_brought(self.ports, said):
            return await delivery.ack()
        waiters = await find_waiters(self.ports, said.ref)
        if waiters:
            await bring(self.ports, said, waiters)
            log.info("word brought", ref=said.ref, by=said.by, episodes=len(waiters))
        elif look_at(found.kept, after=due.fired_at) is None:
            detail = f"no episode waits for {said.ref!r}"
            data = bytes(raw({"ref": said.ref, "result": said.result, "by": said.by}))
            nobodys = letter(
                self.ports, reason=NOBODY_WAITS, detail=detail, seq=found.seq, data=data
            )
            return await self._bury(nobodys, delivery)
        else:
            await put_by(self.ports, found, after=due.fired_at)
        return await delivery.ack()

    async def _bury(self, message: Unreadable, delivery: Delivery[Due | Unreadable]) -> None:
        await self.undertaker.bury(message, actor_id="")
        await delivery.term(message.reason)


async def put_by(ports: Ports, word: PutBy, *, after: datetime) -> None:
    """Have a node look again who waits for word. Putting it by again is harmless.

    Args:
        ports: of the stack.
        word: what was said.
        after: when it was looked at last.

    Raises:
        Unavailable: put it by again.
    """
    payload = unraw(raw(word))
    timer = Timer(actor=QUEUE, purpose=WORD, key=word.kept.word.id, payload=payload)
    await ports.timers.arm(timer, at=look_at(word.kept, after=after) or after)


def letter(ports: Ports, *, reason: str, detail: str, seq: int, data: bytes) -> Unreadable:
    """Return what to bury of the event at `seq` that says that something has come about."""
    subject = ports.stack.event(RESOLVED)
    return Unreadable(
        reason=reason,
        detail=detail,
        stream=ports.stack.stream_of(subject),
        seq=seq,
        subject=subject,
        headers={},
        data=data,
    )


def _strange(ports: Ports, due: Due, delivery: Delivery[Due | Unreadable]) -> Unreadable:
    subject = ports.stack.due(QUEUE)
    return Unreadable(
        reason="unreadable",
        detail=f"this version cannot read the timer {due.purpose} {due.key!r}",
        stream=ports.stack.stream_of(subject),
        seq=delivery.seq,
        subject=subject,
        headers={},
        data=bytes(raw(due)),
    )
