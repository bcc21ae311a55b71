"""Answers for what has come due for one actor: ticks, calm, and fires by hand.

Whatever follows is either safe to repeat, such as arming the next tick, or part of what must be in
good hands before the message is answered for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from engine import calm, firing
from engine.calm import calming_in
from engine.dryrun import merged
from engine.errors import BadRequest
from engine.firing import Fire, fire_dedupe_key, manual_trigger, parse_fire
from engine.runtime import ticker
from engine.runtime.arbiter import Arbiter
from engine.runtime.debouncer import fired_of
from engine.runtime.parts import Part
from engine.runtime.ticker import Ticker
from streams.delivery import Delivery, Unreadable
from streams.events import EpisodeOpened
from streams.json import raw
from streams.timers import Due
from streams.triggers import Mode


@dataclass
class Alarms:
    """What comes due for one actor, on one node."""

    arbiter: Arbiter
    ticker: Ticker = field(init=False)

    def __post_init__(self) -> None:
        self.ticker = Ticker(self.arbiter.crew)

    async def parts(self, due: Due, delivery: Delivery[object]) -> Sequence[Part] | None:
        """Return what is to be done for `due`; None: only another version of the actor may know.

        Args:
            due: a timer that has fired.
            delivery: the message it came in.

        Raises:
            Unavailable: the log is away. Ask again when it comes again.
        """
        is_repeat = delivery.deliveries > 1
        match due.purpose:
            case ticker.PURPOSE:
                return await self.ticker.due(due.payload, is_repeat=is_repeat)
            case calm.PURPOSE:
                return self._calmed(due, is_repeat=is_repeat)
            case firing.PURPOSE:
                return await self._fired(due, delivery)
            case _:
                return None

    def forgotten(self, due: Due, delivery: Delivery[object]) -> Unreadable | None:
        """Return what to bury of a due timer that nobody has known for long; None: nothing.

        A schedule that nobody declares any more just ends. What a person or the world wanted
        is kept.
        """
        if due.purpose == ticker.PURPOSE:
            return None
        detail = f"no node knows what the timer {due.purpose} {due.key!r} is for"
        return self._unreadable(due, delivery, reason="not_watched", detail=detail)

    def _calmed(self, due: Due, *, is_repeat: bool) -> Sequence[Part] | None:
        calming = calming_in(due.payload)
        if calming is None:
            return None
        expectation = self.arbiter.crew.actor.expectations.get(calming.expectation)
        if expectation is None:
            return None
        return [fired_of(calming, expectation, is_repeat=is_repeat)]

    async def _fired(self, due: Due, delivery: Delivery[object]) -> Sequence[Part] | None:
        try:
            fire = parse_fire(due.payload)
        except BadRequest as error:
            return [self._unreadable(due, delivery, reason="unreadable", detail=str(error))]
        if fire.expectation not in self.arbiter.crew.actor.expectations:
            return None
        return [await self.arbiter.fire(self._opening(fire))]

    def _opening(self, fire: Fire) -> EpisodeOpened:
        """Return the opening that a person asked for: what the fire says goes before the rest."""
        expectation = self.arbiter.crew.actor.expectations[fire.expectation]
        trigger = manual_trigger(fire, subject_key=expectation.subject_key)
        opened = self.arbiter.opening(expectation, trigger, fire_dedupe_key(fire.key, fire.mode))
        is_dry = fire.mode is Mode.DRY_RUN
        return replace(
            opened,
            mode=fire.mode,
            overrides=merged(fire.overrides, expectation.dry_run) if is_dry else None,
            priority=fire.priority or opened.priority,
        )

    def _unreadable(
        self, due: Due, delivery: Delivery[object], *, reason: str, detail: str
    ) -> Unreadable:
        stack, actor = self.arbiter.crew.ports.stack, self.arbiter.crew.actor.id
        subject = stack.due(actor)
        return Unreadable(
            reason=reason,
            detail=detail,
            stream=stack.stream_of(subject),
            seq=delivery.seq,
            subject=subject,
            headers={},
            data=bytes(raw(due)),
        )
