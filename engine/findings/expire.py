"""Expires and escalates findings when their timers fire: decide → append → arm.

A finding's timers are armed after its event is on the log. Of two writers the slower may arm for an
older event, so each checks afterwards whether its event is still the newest, and arms again if not.
A timer that fires is decided on the finding as it is then, so an outdated or repeated timer is
harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from engine import telemetry
from engine.app import findings
from engine.app.actor import Actor, Expectation
from engine.app.findings import ESCALATE, AgeEvent, Escalation
from engine.episodes import dry_run
from engine.findings import events as finding_events
from engine.findings.store import FindingStore, newest_event
from engine.runtime.context import ActorContext
from engine.runtime.store import Contended
from streams.clock import Clock
from streams.errors import BadName, Unavailable, UnreadableEvent
from streams.model.events import FindingEvent
from streams.model.findings import DueTimer, Finding, FindingStatus
from streams.ports.all import Ports
from streams.ports.timers import Due, Timer
from streams.tracing import traceparent

ARMINGS_MAX: Final = 16
"""Most attempts to arm the timers of a finding that keeps changing."""

EXPECTATION: Final = "expectation"
"""The payload's field with the name of the expectation that raised it."""


PURPOSES: Final = frozenset({findings.EXPIRE, findings.ESCALATE})
"""Purposes of the timers of findings."""


@dataclass(frozen=True, kw_only=True)
class DueFinding:
    """A finding whose timer has fired. It opens no episode."""

    due: Due
    subject: str
    """The subject of its log."""


@dataclass(frozen=True)
class FindingTimers:
    """Arms the timers of findings, on one node."""

    ports: Ports
    actors: Mapping[str, Actor]
    """Those whose escalations are known here."""
    clock: Clock

    async def arm(self, event: FindingEvent, *, version: int, before: Finding | None) -> None:
        """Arm what the finding of `event` needs; safe to repeat.

        `before` is the finding before the change, if its timers are known to be armed.
        """
        subject = self.ports.stack.finding(event.finding.finding_key)
        for _ in range(ARMINGS_MAX):
            wakes = self._wakes(event.finding, before)
            if not wakes:
                return
            for purpose, at in wakes.items():
                await self.ports.timers.arm(
                    timer_of(event.finding, purpose), at=at, trace=traceparent()
                )
            last = await self.ports.log.last(subject)
            if last is None or last.seq == version:  # guard: slower-writer-arms
                return
            event, version, before = newest_event(last), last.seq, None
        raise Contended(subject, detail=f"changed {ARMINGS_MAX} times while its timers were armed")

    def _wakes(self, finding: Finding, before: Finding | None) -> Mapping[str, datetime]:
        steps = self.escalations_of(finding)
        wakes = findings.wakes_at(finding, steps or ())
        is_active = finding.status is FindingStatus.ACTIVE
        if steps is None and is_active and (before is None or _gets_worse_else(finding, before)):
            # Its escalations are not known here. A node that knows them is to look, at once.
            return {**wakes, ESCALATE: self.clock.now()}
        return wakes

    def escalations_of(self, finding: Finding) -> Sequence[Escalation] | None:
        """Return the escalations of `finding`; None: its expectation is not known here."""
        expectation = self.expectation_of(finding)
        return None if expectation is None else expectation.escalation.get(finding.class_, ())

    def expectation_of(self, finding: Finding) -> Expectation | None:
        """Return the expectation that raised `finding`; None: it is not known here."""
        actor = self.actors.get(dry_run.owner_of(finding))
        return None if actor is None else actor.expectations.get(finding.expectation_id)


def timer_of(finding: Finding, purpose: str) -> Timer:
    """Return the timer for `finding`, in its actor's queue."""
    return Timer(
        actor=dry_run.owner_of(finding),
        purpose=purpose,
        key=finding.finding_key,
        payload={EXPECTATION: finding.expectation_id},
    )


def _gets_worse_else(finding: Finding, before: Finding) -> bool:
    """Return whether `finding` escalates at another time than `before`."""
    return (finding.class_, finding.severity) != (before.class_, before.severity)


@dataclass
class FindingExpiry:
    """Handles the timers of one actor's findings, on one node."""

    context: ActorContext
    _store: FindingStore = field(init=False)
    _timers: FindingTimers = field(init=False)

    def __post_init__(self) -> None:
        ports, clock = self.context.ports, self.context.clock
        self._store = FindingStore(ports.log, ports.stack, clock, self.context.turns)
        self._timers = FindingTimers(ports, self.context.catalog.actors, clock)

    def due(self, due: Due) -> DueFinding | None:
        """Return the finding of a timer; None: only another version of the actor may know it."""
        name = due.payload.get(EXPECTATION)
        if due.purpose == findings.ESCALATE and name not in self.context.actor.expectations:
            return None
        try:
            subject = self.context.ports.stack.finding(due.key)
        except BadName:
            return None
        return DueFinding(due=due, subject=subject)

    async def apply(self, aged: DueFinding) -> None:
        """Expire or escalate the finding if it is due, and arm what it needs next."""
        due = aged.due
        try:
            change = await self._store.change(
                due.key, partial(self._rule, due), id=f"{due.id}.{due.purpose}"
            )
            if change.newest is None:
                return
            # guard: early-timer-rearmed
            await self._timers.arm(change.newest, version=change.version, before=change.before)
            if change.is_made:
                assert isinstance(change.newest, AgeEvent), "what a timer leads to"
                self._count(change.newest)
        except UnreadableEvent as error:
            raise Unavailable(aged.subject, detail=str(error)) from error

    def _rule(self, due: Due, newest: FindingEvent, now: datetime) -> AgeEvent | None:
        # By the server's clock it is time, and ours may be behind.
        at = max(now, due.fired_at)  # guard: server-clock-tells-time
        finding, cause = newest.finding, DueTimer(timer_id=due.id)
        if due.purpose == findings.EXPIRE:
            return findings.expire(finding, cause=cause, at=at)
        steps = self._timers.escalations_of(finding) or ()
        return findings.grow_worse(finding, steps, cause=cause, at=at)

    def _count(self, event: AgeEvent) -> None:
        labels = {"actor": self.context.actor.id, "change": finding_events.change_of(event)}
        telemetry.finding_ages.add(1, labels)
