"""Arms the timers that findings need: when they expire, and when they get worse.

Which timers a finding needs follows from the finding and from what its expectation declares, and is
seen to after its event is on the log. Of two writers the slower may arm for what the faster has
changed since; so each looks afterwards whether it armed for the newest event, and arms anew if not.
A timer that is armed for what is not so any more does no harm: whoever serves it decides on the
finding as it is then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine import aging, dryrun
from engine.actor import Actor
from engine.aging import ESCALATE, Escalation
from engine.expectation import Expectation
from engine.runtime.custodian import newest_event
from engine.runtime.turns import Contended
from streams.clock import Clock
from streams.events import FindingEvent
from streams.findings import Finding, FindingStatus
from streams.ports import Ports
from streams.timers import Timer
from streams.tracing import traceparent

ARMINGS_MAX: Final = 16
"""Most times that timers of one finding are armed because it changes all the time."""

EXPECTATION: Final = "expectation"
"""What the payload of a finding's timer says: the name of the expectation that raised it."""


@dataclass(frozen=True)
class Timekeeper:
    """Arms timers of findings, on one node."""

    ports: Ports
    actors: Mapping[str, Actor]
    """Those whose escalations are known here."""
    clock: Clock

    async def arm(self, event: FindingEvent, *, version: int, before: Finding | None) -> None:
        """Arm what the finding of `event` needs. Arming again is harmless.

        Args:
            event: its newest, as far as the caller knows.
            version: the finding's, with that event.
            before: the finding as it was, if that is known to have its timers.

        Raises:
            Contended: it changes all the time.
            Unavailable: the log is away. Arm again.
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
            if last is None or last.seq == version:
                return
            event, version, before = newest_event(last), last.seq, None
        raise Contended(f"{subject}: changed {ARMINGS_MAX} times while its timers were armed")

    def _wakes(self, finding: Finding, before: Finding | None) -> Mapping[str, datetime]:
        steps = self.escalations_of(finding)
        wakes = aging.wakes_at(finding, steps or ())
        is_active = finding.status is FindingStatus.ACTIVE
        if steps is None and is_active and (before is None or _gets_worse_else(finding, before)):
            # Nobody here knows how it gets worse with age. Those who do are to look, at once.
            return {**wakes, ESCALATE: self.clock.now()}
        return wakes

    def escalations_of(self, finding: Finding) -> Sequence[Escalation] | None:
        """Return how `finding` gets worse with age; None: its expectation is not known here."""
        expectation = self.expectation_of(finding)
        return None if expectation is None else expectation.escalation.get(finding.class_, ())

    def expectation_of(self, finding: Finding) -> Expectation | None:
        """Return the expectation that raised `finding`; None: it is not known here."""
        actor = self.actors.get(dryrun.owner_of(finding))
        return None if actor is None else actor.expectations.get(finding.expectation_id)


def timer_of(finding: Finding, purpose: str) -> Timer:
    """Return the timer that has the actor of `finding` look at it."""
    return Timer(
        actor=dryrun.owner_of(finding),
        purpose=purpose,
        key=finding.finding_key,
        payload={EXPECTATION: finding.expectation_id},
    )


def _gets_worse_else(finding: Finding, before: Finding) -> bool:
    """Return whether `finding` may get worse at another time than it would have `before`."""
    return (finding.class_, finding.severity) != (before.class_, before.severity)
