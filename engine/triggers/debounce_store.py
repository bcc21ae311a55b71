"""Arms debounce timers: read the pending one → decide → arm at its revision.

What has fired for a subject is stored for a while: a redelivered event is then known to be old and
starts no other debounce; an old event that a slow node armed all the same is recognised when its
timer fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from engine.app.actor import Expectation
from engine.app.triggers import entity_id
from engine.runtime.context import ActorContext
from engine.triggers import debounce
from engine.triggers.debounce import PendingDebounce, Rearm
from engine.triggers.rules import Gated
from streams.errors import TimerConflict, TooLarge, Unavailable, UnreadableEvent
from streams.keys import calmed_key
from streams.ports.timers import PendingTimer, Timer
from streams.tokens import subject_token
from streams.tracing import traceparent

TRIES_MAX: Final = 16
"""Most tries to arm one timer that other nodes arm at the same time."""

FIRED_S: Final = 3_600
"""How long is stored what fired for a subject, in seconds: longer than it takes until an
unacknowledged event comes again."""


@dataclass(eq=False)
class DebounceTurn:
    """An event that waits to be debounced."""

    part: Gated
    is_held: bool | None = None
    """Whether it replaced the pending event; None: not decided."""


@dataclass(eq=False)
class DebounceQueue:
    """The events about one subject that came while its timer was being armed."""

    turns: list[DebounceTurn] = field(default_factory=list)
    """No more than may be unacknowledged at a time."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True)
class DebounceStore:
    """Debounces the events of one actor, on one node."""

    context: ActorContext
    _lines: dict[str, DebounceQueue] = field(default_factory=dict)
    """By the keys of timers."""

    async def hold(self, part: Gated) -> bool:
        """Debounce the part's event; return False if a newer one is pending or has fired."""
        # Events about the same subject that come meanwhile share the next arming, so a burst costs
        # no more than the server has time for, and each is counted.
        expectation, subject = part.expectation, self._subject(part)
        if part.is_repeat and await self._is_old(part, subject):  # guard: older-repeat-is-old
            return False
        key = _timer_key(expectation, subject)
        line, turn = self._lines.setdefault(key, DebounceQueue()), DebounceTurn(part)
        line.turns.append(turn)
        try:
            async with line.lock:
                if turn.is_held is None:
                    await self._hold_line(key, line, turn)
        finally:
            line.turns.remove(turn)
            if not line.turns:
                del self._lines[key]
        assert turn.is_held is not None, "whoever had the lock came to all of the line"
        return turn.is_held

    async def _hold_line(self, key: str, line: DebounceQueue, own: DebounceTurn) -> None:
        """Debounce all that wait, or only `own` if one of them is too large."""
        try:
            # guard: held-with-one-arming
            await self._hold(key, [turn for turn in line.turns if turn.is_held is None])
        except TooLarge:  # guard: too-large-harms-none
            await self._hold(key, [own])

    async def _hold(self, key: str, turns: Sequence[DebounceTurn]) -> None:
        for _ in range(TRIES_MAX):
            pending = await self._pending(key)
            rearm = before = _held_by(pending)
            outcomes: list[bool] = []
            for part in (turn.part for turn in turns):
                rules, happened, now = part.expectation, part.event, self.context.clock.now()
                after = debounce.hold(rules, happened, rearm, now=now, is_repeat=part.is_repeat)
                outcomes.append(after is not None and after.debounced.event is happened)
                rearm = after or rearm
            if rearm is before or await self._arm(key, rearm, pending):
                for turn, is_held in zip(turns, outcomes, strict=True):
                    turn.is_held = is_held
                return
        raise Unavailable(key, detail=f"{TRIES_MAX} times another node was faster")

    async def _arm(self, key: str, rearm: Rearm | None, pending: PendingTimer | None) -> bool:
        """Arm `rearm` in place of `pending`; return False if that has changed."""
        assert rearm is not None, "something came, so something is held"
        timer = Timer(
            actor=self.context.actor.id,
            purpose=debounce.PURPOSE,
            key=key,
            payload=debounce.payload_of(rearm.debounced),
        )
        revision = pending.revision if pending else 0
        try:
            # guard: calm-armed-as-read
            await self.context.ports.timers.arm(
                timer, at=rearm.due_at, expecting=revision, trace=traceparent()
            )
        except TimerConflict:
            return False
        return True

    async def note_fired(self, part: Gated) -> None:
        """Record that the part's event has fired, after its debounce."""
        key = self._fired_key(part, self._subject(part))
        await self.context.ports.gates.put(key, part.event.at.isoformat().encode(), ttl_s=FIRED_S)

    async def is_superseded(self, part: Gated) -> bool:
        """Return whether a newer event has fired for the subject than the debounced one."""
        # A late node may have armed it, or a node armed it while the newer one was firing.
        fired_at = await self._fired_at(part, self._subject(part))
        return fired_at is not None and part.event.at < fired_at  # guard: fired-may-fire-again

    async def _is_old(self, part: Gated, subject: str) -> bool:
        fired_at = await self._fired_at(part, subject)
        return fired_at is not None and part.event.at <= fired_at

    async def _fired_at(self, part: Gated, subject: str) -> datetime | None:
        entry = await self.context.ports.gates.get(self._fired_key(part, subject))
        return datetime.fromisoformat(entry.value.decode()) if entry and entry.value else None

    async def _pending(self, key: str) -> PendingTimer | None:
        """Return the pending timer; an unreadable one is replaced like any other."""
        try:
            return await self.context.ports.timers.pending(
                self.context.actor.id, debounce.PURPOSE, key
            )
        except UnreadableEvent as error:
            return PendingTimer(payload={}, due_at=self.context.clock.now(), revision=error.seq)

    def _fired_key(self, part: Gated, subject: str) -> str:
        return calmed_key(self.context.actor.id, part.expectation.name, subject)

    def _subject(self, part: Gated) -> str:
        return entity_id(part.event.payload, part.expectation.subject_key)


def fired_of(debounced: PendingDebounce, expectation: Expectation, *, is_repeat: bool) -> Gated:
    """Return the part of a debounce timer that fires."""
    return Gated(
        expectation=expectation,
        event=debounced.event,
        is_calm=True,
        coalesced=debounced.coalesced,
        is_repeat=is_repeat,
    )


def _held_by(pending: PendingTimer | None) -> Rearm | None:
    """Return the pending event and its time; an unreadable one is none."""
    debounced = debounce.calming_in(pending.payload) if pending else None
    return Rearm(debounced, pending.due_at) if pending and debounced else None


def _timer_key(expectation: Expectation, subject: str) -> str:
    return f"{expectation.name}/{subject_token(subject)}"
