"""Holds events until their subject is calm: read what is held → rule → arm the timer anew.

Each arming names the one that it was decided on, so of two nodes one decides again. What has fired
for a subject is noted for a while: an event that comes again because its node died is then known
to be an old one, and does not call for calm once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine import calm
from engine.calm import Calming
from engine.expectation import Expectation
from engine.runtime.crew import Crew
from engine.runtime.parts import Gated
from engine.trigger import entity_id
from streams.errors import TimerConflict, Unavailable, UnreadableEvent
from streams.keys import debounced_key, subject_token
from streams.timers import PendingTimer, Timer
from streams.tracing import traceparent

TRIES_MAX: Final = 16
"""Most tries to arm one timer that other nodes arm at the same time."""

FIRED_S: Final = 3_600
"""How long it is known what fired for a subject, in seconds: longer than it takes until an event
comes again that a node has left unanswered."""


@dataclass(frozen=True)
class Debouncer:
    """Holds the events of one actor, on one node."""

    crew: Crew

    async def hold(self, part: Gated) -> bool:
        """Hold the part's event; return False if a newer one is held or has fired.

        Raises:
            Unavailable: the log is away, or other nodes were faster every time.
            TooLarge: the event does not fit in a timer.
        """
        expectation, subject = part.expectation, self._subject(part)
        if part.is_repeat and await self._is_old(part, subject):
            return False
        actor, key = self.crew.actor.id, _timer_key(expectation, subject)
        for _ in range(TRIES_MAX):
            pending = await self._pending(key)
            before = calm.calming_in(pending.payload) if pending else None
            now = self.crew.clock.now()
            rearm = calm.hold(expectation, part.event, before, now=now)
            if rearm is None:
                return False
            timer = Timer(
                actor=actor,
                purpose=calm.PURPOSE,
                key=key,
                payload=calm.payload_of(rearm.calming),
            )
            revision = pending.revision if pending else 0
            try:
                await self.crew.ports.timers.arm(
                    timer, at=rearm.due_at, expecting=revision, trace=traceparent()
                )
            except TimerConflict:
                continue
            return True
        raise Unavailable(key, detail=f"{TRIES_MAX} times another node was faster")

    async def note_fired(self, part: Gated) -> None:
        """Take note that the part's event has fired, after its subject calmed down.

        Raises:
            Unavailable: the gates are away. Noting it again is safe.
        """
        key = self._fired_key(part, self._subject(part))
        await self.crew.ports.gates.put(key, part.event.at.isoformat().encode(), ttl_s=FIRED_S)

    async def _is_old(self, part: Gated, subject: str) -> bool:
        entry = await self.crew.ports.gates.get(self._fired_key(part, subject))
        if entry is None or entry.value is None:
            return False
        return part.event.at <= datetime.fromisoformat(entry.value.decode())

    async def _pending(self, key: str) -> PendingTimer | None:
        """Return what is held; what nobody can read is replaced like any other."""
        try:
            return await self.crew.ports.timers.pending(self.crew.actor.id, calm.PURPOSE, key)
        except UnreadableEvent as error:
            return PendingTimer(payload={}, due_at=self.crew.clock.now(), revision=error.seq)

    def _fired_key(self, part: Gated, subject: str) -> str:
        return debounced_key(self.crew.actor.id, part.expectation.name, subject)

    def _subject(self, part: Gated) -> str:
        return entity_id(part.event.payload, part.expectation.subject_key)


def fired_of(calming: Calming, expectation: Expectation, *, is_repeat: bool) -> Gated:
    """Return what the timer of `expectation` for calm comes to when it fires."""
    return Gated(
        expectation=expectation,
        event=calming.event,
        is_calm=True,
        coalesced=calming.coalesced,
        is_repeat=is_repeat,
    )


def _timer_key(expectation: Expectation, subject: str) -> str:
    return f"{expectation.name}/{subject_token(subject)}"
