"""Takes what has come due for an actor, from the queue that all its nodes share: take → admit.

Nobody may wake an actor that is paused, but what has been woken goes on: then another waker takes
what is due about that, and has all else come again: soon at first, for other nodes may wake it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine import telemetry
from engine.backoff import backoff_s
from engine.runtime.alarms import GOES_ON, RESTING_S, Alarms
from engine.runtime.entrance import HAND_BACK_S, Entrance
from engine.runtime.gate import STRANGE_DELIVERIES_MAX, leave
from engine.runtime.intake import taking
from engine.runtime.permit import Permit
from streams.delivery import Delivery, Unreadable
from streams.errors import Unavailable
from streams.timers import Due

WAIT_S: Final = 5.0
"""Longest silent wait for due timers; only how often an idle waker looks up. Half of
`ACK_WAIT_S`, as for events (`engine.runtime.gate.WAIT_S`)."""

GIVE_WAY_S: Final = 0.05
"""First wait of a message for a node that may wake the actor, in seconds; it doubles each time, up
to `RESTING_S`: if there is such a node, it soon has it, and if there is none, nothing is busy."""

log = structlog.get_logger("vigil.waker")


@dataclass
class Waker:
    """The waker of one actor on one node."""

    entrance: Entrance
    alarms: Alarms
    permit: Permit
    """Without it nothing is taken."""
    takes_causes: bool
    """Whether the actor may be woken."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open and every schedule ticks."""

    async def serve(self) -> None:
        """Answer for what comes due for as long as the node may. What it opened goes on.

        Raises:
            Unavailable: the actor's queue could not be opened, or its schedules not be armed.
        """
        crew = self.entrance.crew
        labels = {"actor": crew.actor.id, "queue": "due"}
        opening = crew.ports.timers.open(crew.actor.id)
        withdrawn = self.permit.withdrawn
        async with taking(opening, stopping=withdrawn) as source:
            if self.takes_causes:
                await self.alarms.ticker.ensure()
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

    async def _admit(self, delivery: Delivery[Due | Unreadable], asked_s: float) -> None:
        due = delivery.content
        if isinstance(due, Unreadable):
            return await self.entrance.let_in(delivery, [due], since_s=asked_s)
        if not self.takes_causes and due.purpose not in GOES_ON:
            return await _rest(delivery)
        try:
            parts = await self.alarms.parts(due, delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            return await delivery.nak(delay_s=HAND_BACK_S)
        if parts is not None:
            return await self.entrance.let_in(delivery, parts, since_s=asked_s)
        if self.alarms.returns_of(due) < STRANGE_DELIVERIES_MAX:
            return await leave(delivery)
        letter = self.alarms.forgotten(due, delivery)
        parts = [] if letter is None else [letter]
        return await self.entrance.let_in(delivery, parts, since_s=asked_s)


async def _rest(delivery: Delivery[Due | Unreadable]) -> None:
    pause_s = backoff_s(delivery.deliveries, first_s=GIVE_WAY_S, most_s=RESTING_S)
    await delivery.nak(delay_s=pause_s)
