"""What people do with findings: clear, acknowledge, note."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from engine.errors import NoFinding
from engine.findings import finding as finding_rules
from engine.findings.finding import person
from engine.findings.store import FindingChange, FindingStore, Rule
from engine.runtime.store import Turns
from streams.clock import Clock
from streams.model.events import FindingEvent
from streams.ports.all import Ports


@dataclass(frozen=True)
class FindingRequests:
    """Changes findings for a person, and returns the result.

    Every method raises `BadRequest` if a text cannot be stored, `BadName` or `NoFinding` if there
    has never been a finding of this key, and `UnknownOutcome` if it may be done; repeating it is
    safe then, except for a note.
    """

    ports: Ports
    clock: Clock

    async def clear(self, key: str, *, by: str, reason: str = "") -> FindingChange:
        """End a finding; one that has ended stays as it is."""
        cause = person(by, reason)

        def rule(newest: FindingEvent, at: datetime) -> FindingEvent | None:
            return finding_rules.clear(newest.finding, cause=cause, at=at)

        return await self._change(key, rule)

    async def acknowledge(self, key: str, *, by: str, reason: str = "") -> FindingChange:
        """Record that a person knows of an active finding; only the first one is recorded."""
        cause = person(by, reason)

        def rule(newest: FindingEvent, at: datetime) -> FindingEvent | None:
            return finding_rules.acknowledge(newest.finding, cause=cause, at=at)

        return await self._change(key, rule)

    async def note(self, key: str, *, by: str, text: str) -> FindingChange:
        """Record a person's note on a finding, which may have ended."""
        cause = person(by, text)

        def rule(newest: FindingEvent, _: datetime) -> FindingEvent:
            return finding_rules.note(newest.finding, cause=cause)

        return await self._change(key, rule)

    async def _change(self, key: str, rule: Rule) -> FindingChange:
        store = FindingStore(self.ports.log, self.ports.stack, self.clock, Turns())
        change = await store.change(key, rule, id=f"person.{uuid4().hex}")
        if change.newest is None:
            raise NoFinding(key)
        return change
