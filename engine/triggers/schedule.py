"""Keeps the schedules of one actor going: one timer each, armed again by every tick.

A timer is named after its schedule, so a changed schedule gets another timer, and the old one ends
with its next tick, or by `engine.operations.reconcile`. Whether a tick was missed depends on the
time, and a node's clock may be wrong: so if the server fired a tick in time and it is late by this
clock, the timer is armed once more, fires at once, and brings the server's time.

Several nodes may have one tick at a time: its message comes again while the first node stands
still. Any of them acknowledges it for all, so a tick that only one of them would open has to stay
armed: nobody replaces an armed tick by a later one, except the tick in hand, which has fired.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from engine.app.actor import Expectation
from engine.app.triggers import (
    TICK,
    TICK_LATE_S,
    Schedule,
    due_ticks,
    entity_id,
    next_tick,
    spec_of,
    tick_timer_key,
)
from engine.runtime.context import ActorContext
from engine.triggers.rules import Ticked
from streams.errors import TimerConflict, Unavailable, UnreadableEvent
from streams.json import UNDECODABLE, JsonObject
from streams.model.triggers import ScheduleTrigger
from streams.ports.timers import Due, Timer

PURPOSE: Final = TICK

TRIES_MAX: Final = 8
"""How often a tick is armed before it is handed back, if others arm theirs at the same moment."""

log = structlog.get_logger("vigil.triggers")


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a schedule's timer."""

    expectation: str
    schedule: str
    at: datetime
    asks: bool = False
    """Whether it was armed again to get the server's time."""


@dataclass(frozen=True)
class Ticker:
    """The schedules of one actor, on one node."""

    context: ActorContext

    async def ensure(self) -> None:
        """Arm the next tick of every schedule without a pending one."""
        for expectation in self.context.actor.expectations.values():
            for schedule in expectation.schedules:
                await self._ensure(expectation, schedule)

    async def due(self, due: Due, *, is_repeat: bool) -> list[Ticked] | None:
        """Return the ticks to evaluate, and arm the next; None: no schedule here has the timer."""
        tick = _tick_in(due.payload)
        expectation = self.context.actor.expectations.get(tick.expectation) if tick else None
        if tick is None or expectation is None:
            return None
        known = {spec_of(schedule): schedule for schedule in expectation.schedules}
        schedule = known.get(tick.schedule)
        if schedule is None:
            return None
        # One that comes again may have been asked about, or have opened something.
        is_doubtful = not is_repeat and self._is_late(due.fired_at)
        if is_doubtful and not tick.asks:  # guard: server-time-before-missed
            await self._arm_next(tick, replace(tick, asks=True))
            return []
        # Others may have had it while this node stood still, before it asked.
        is_repeat = is_repeat or tick.asks  # guard: asked-tick-may-be-open
        # guard: no-tick-ahead-of-server
        now = due.fired_at if is_doubtful else max(due.fired_at, self.context.clock.now())
        caught = due_ticks(schedule, tick.at, now)
        # guard: tick-arms-next
        await self._arm_next(tick, replace(tick, at=caught.arms, asks=False))
        # It may have been in time when it came first, and its node have died before the call.
        # guard: missed-tick-completed-if-open
        missed = (tick.at,) if is_repeat and tick.at not in caught.opens else ()
        return [
            Ticked(
                expectation=expectation,
                schedule=schedule,
                trigger=_trigger(expectation, schedule, at),
                is_repeat=is_repeat,
                is_missed=at in missed,
            )
            for at in (*missed, *caught.opens)
        ]

    def _is_late(self, fired_at: datetime) -> bool:
        return (self.context.clock.now() - fired_at).total_seconds() > TICK_LATE_S

    async def _ensure(self, expectation: Expectation, schedule: Schedule) -> None:
        timers, key = self.context.ports.timers, timer_key(expectation.name, schedule)
        try:
            if await timers.pending(self.context.actor.id, PURPOSE, key) is not None:
                return
        except UnreadableEvent as error:
            log.warning("a timer of a newer version ticks", key=key, error=str(error))
            return
        at = next_tick(schedule, self.context.clock.now())
        first = Tick(expectation=expectation.name, schedule=spec_of(schedule), at=at)
        try:
            await self._arm(first, expecting=0)  # guard: ticking-not-rearmed
        except TimerConflict:
            return  # Another node was faster.

    async def _arm_next(self, in_hand: Tick, tick: Tick) -> None:
        """Arm `tick` after `in_hand`, unless the same one or an earlier one is armed."""
        revision = 0
        for _ in range(TRIES_MAX):
            try:
                return await self._arm(tick, expecting=revision)
            except TimerConflict:  # guard: tick-looks-again
                found = await self._replaceable(in_hand, tick)
            if found is None:
                return None
            revision = found
        key = tick_timer_key(tick.expectation, tick.schedule)
        raise Unavailable(key, detail=f"it was armed {TRIES_MAX} times meanwhile")

    async def _replaceable(self, in_hand: Tick, tick: Tick) -> int | None:
        """Return the revision that `tick` may replace, 0 for none that is armed; None: it may not.

        A replica that is behind may still show `in_hand`, which has fired. A timer that this
        version cannot read is replaced, too: it would be refused when it fires, and the schedule
        would end.
        """
        timer = tick_timer(self.context.actor.id, tick)
        try:
            armed = await self.context.ports.timers.pending(timer.actor, timer.purpose, timer.key)
        except UnreadableEvent as error:  # guard: unreadable-tick-replaced
            return error.seq
        if armed is None:
            return 0
        other = _tick_in(armed.payload)
        if other is None or other == in_hand:  # guard: tick-in-hand-replaced
            return armed.revision
        return None if other.at <= tick.at else armed.revision  # guard: tick-moves-none-later

    async def _arm(self, tick: Tick, *, expecting: int) -> None:
        timer = tick_timer(self.context.actor.id, tick)
        await self.context.ports.timers.arm(timer, at=tick.at, expecting=expecting)


def _trigger(expectation: Expectation, schedule: Schedule, at: datetime) -> ScheduleTrigger:
    return ScheduleTrigger(
        scheduled_at=at,
        schedule=spec_of(schedule),
        # guard: schedule-subject-in-payload
        entity_id=entity_id(schedule.payload, expectation.subject_key),
        payload=schedule.payload,
    )


def timer_key(expectation: str, schedule: Schedule) -> str:
    """Return the key of the timer of one schedule."""
    return tick_timer_key(expectation, spec_of(schedule))


def tick_timer(actor: str, tick: Tick) -> Timer:
    """Return the timer of `actor` for `tick`."""
    return Timer(
        actor=actor,
        purpose=PURPOSE,
        key=tick_timer_key(tick.expectation, tick.schedule),
        payload=msgspec.to_builtins(tick),
    )


def _tick_in(payload: JsonObject) -> Tick | None:
    try:
        return msgspec.convert(payload, Tick)
    except UNDECODABLE:
        return None
