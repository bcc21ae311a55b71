"""Looks at findings whose time has come: decide on the finding as it is → append → arm → tell.

A timer only says that somebody should look. The finding may have been refreshed, cleared or raised
anew since it was armed, and a timer comes again if its node dies. So whoever looks decides on the
finding as it is, arms what it needs next, and tells the world what this timer has led to, be it
now or before a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from engine import aging, dryrun, publicity, telemetry
from engine.aging import AgeEvent
from engine.runtime.crew import Crew
from engine.runtime.custodian import Custodian, events_of
from engine.runtime.herald import Herald
from engine.runtime.parts import Aged
from engine.runtime.timekeeper import EXPECTATION, Timekeeper
from engine.runtime.turns import Contended
from streams.errors import BadName, Unavailable, UnreadableEvent
from streams.events import FindingEvent
from streams.findings import DueTimer
from streams.log import START
from streams.timers import Due

PURPOSES: Final = frozenset({aging.EXPIRE, aging.ESCALATE})
"""Of the timers that are for findings."""


@dataclass
class Warden:
    """Looks at the findings of one actor, on one node."""

    crew: Crew
    _custodian: Custodian = field(init=False)
    _timekeeper: Timekeeper = field(init=False)

    def __post_init__(self) -> None:
        ports, clock = self.crew.ports, self.crew.clock
        self._custodian = Custodian(ports.log, ports.stack, clock, self.crew.turns)
        self._timekeeper = Timekeeper(ports, self.crew.cast.actors, clock)

    def due(self, due: Due) -> Aged | None:
        """Return the finding to look at; None: only another version of the actor may know how.

        Args:
            due: a timer of one of the `PURPOSES`.
        """
        name = due.payload.get(EXPECTATION)
        if due.purpose == aging.ESCALATE and name not in self.crew.actor.expectations:
            return None
        try:
            subject = self.crew.ports.stack.finding(due.key)
        except BadName:
            return None
        return Aged(due=due, subject=subject)

    async def look(self, aged: Aged) -> None:
        """Have the finding expire or get worse if it is to, and arm what it needs next.

        Raises:
            Unavailable: the log is away, or others change it again and again, or in ways that this
                version of the engine does not know. Look again later.
        """
        due = aged.due
        try:
            change = await self._custodian.change(
                due.key, partial(self._rule, due), id=f"{due.id}.{due.purpose}"
            )
            if change.newest is None:
                return
            await self._timekeeper.arm(change.newest, version=change.version, before=change.before)
            if change.is_made:
                assert isinstance(change.newest, AgeEvent), "what a timer leads to"
                self._count(change.newest)
                await self._tell(change.newest, seq=change.version)
            else:
                await self._tell_again(aged)
        except (Contended, UnreadableEvent) as error:
            raise Unavailable(aged.subject, detail=str(error)) from error

    def _rule(self, due: Due, newest: FindingEvent, now: datetime) -> AgeEvent | None:
        # The server's clock has said that it is time, and ours may be behind.
        at = max(now, due.fired_at)
        finding, cause = newest.finding, DueTimer(timer_id=due.id)
        if due.purpose == aging.EXPIRE:
            return aging.expire(finding, cause=cause, at=at)
        steps = self._timekeeper.escalations_of(finding) or ()
        return aging.grow_worse(finding, steps, cause=cause, at=at)

    async def _tell_again(self, aged: Aged) -> None:
        """Tell what the timer led to before; whoever served it then may have died before.

        That may be so also where it comes for the first time: this node may have stood still.
        """
        cause = DueTimer(timer_id=aged.due.id)
        for record in await self.crew.ports.log.read(aged.subject, after=START):
            for event in events_of(record):
                if isinstance(event, AgeEvent) and event.cause == cause:
                    await self._tell(event, seq=record.seq)

    async def _tell(self, event: AgeEvent, *, seq: int) -> None:
        if dryrun.is_meant(event.finding):
            told = publicity.finding_changed_since(event, seq=seq)
            await Herald(self.crew.ports.world).tell([told])

    def _count(self, event: AgeEvent) -> None:
        labels = {"actor": self.crew.actor.id, "change": publicity.change_of(event)}
        telemetry.finding_ages.add(1, labels)
