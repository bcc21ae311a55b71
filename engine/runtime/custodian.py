"""Changes a finding by one decision: read → decide → append at the version, and again if refused.

For what no episode intends: what its age makes of a finding, what people do to it, what was looked
up about it. Every decision is made on the finding as its own subject has it, so one that has been
overtaken finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeAlias

import msgspec

from engine.runtime.turns import Turns
from streams.clock import Clock
from streams.errors import VersionConflict
from streams.events import FindingEvent
from streams.findings import Finding
from streams.log import START, Commit, EventLog, Recorded
from streams.subjects import Stack
from streams.tracing import traceparent

Rule: TypeAlias = Callable[[FindingEvent, datetime], FindingEvent | None]
"""What a decision at a time makes of a finding with this newest event; None: nothing."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision led to."""

    before: Finding | None = None
    """The finding as it was; None: there has never been one of this key."""
    newest: FindingEvent | None = None
    """Its newest event since."""
    version: int = START
    is_made: bool = False
    """Whether the newest event is what the decision led to; else there was nothing to change."""


@dataclass(frozen=True)
class Custodian:
    """Changes findings."""

    log: EventLog
    stack: Stack
    clock: Clock
    turns: Turns

    async def change(self, key: str, rule: Rule, *, id: str) -> Change:
        """Change the finding `key` as `rule` says.

        Args:
            key: the finding's.
            rule: pure; asked again whenever somebody was faster.
            id: of the commit, unique for ever.

        Raises:
            Contended: others are faster, again and again.
            BadName: no finding can have this key.
            UnreadableEvent: a newer version of the engine has written the finding.
            UnknownOutcome: no answer. It may be changed.
            Unavailable: the log is away. It is not changed.
        """
        subject = self.stack.finding(key)
        attempt = partial(self._try, subject, rule, id)
        return await self.turns.write(subject, attempt, clock=self.clock, seed=id)

    async def _try(self, subject: str, rule: Rule, id_: str) -> Change | None:
        """Return what the decision led to; None if a rival was faster."""
        last = await self.log.last(subject)
        if last is None:
            return Change()
        newest, now = newest_event(last), self.clock.now()
        event = rule(newest, now)
        if event is None:
            return Change(before=newest.finding, newest=newest, version=last.seq)
        commit = Commit(id=id_, at=now, events=(event,), trace=traceparent())
        try:
            seq = await self.log.append(subject, commit, after=last.seq)
        except VersionConflict:
            return None
        return Change(before=newest.finding, newest=event, version=seq, is_made=True)


def newest_event(record: Recorded) -> FindingEvent:
    """Return the last event of a finding's commit, which says how the finding is since."""
    events = events_of(record)
    assert events, f"a commit of a finding without an event, at {record.seq}"
    return events[-1]


def events_of(record: Recorded) -> list[FindingEvent]:
    """Return the events of a finding's commit, in order."""
    return [event for event in record.commit.events if isinstance(event, FindingEvent)]
