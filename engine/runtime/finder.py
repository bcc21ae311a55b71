"""Reads findings from the journal, each by its key: what it says is what is, without delay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from engine.durations import Duration, seconds_of
from engine.finding import TTL_S_MAX
from engine.runtime.custodian import newest_event
from streams.clock import Clock, SystemClock
from streams.findings import Finding
from streams.log import EventLog
from streams.ports import Ports
from streams.subjects import Stack


@dataclass(frozen=True)
class Finder:
    """`Findings` on the journal of a stack; see `engine.reading`."""

    log: EventLog
    stack: Stack
    clock: Clock

    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding. See `Findings.get`."""
        last = await self.log.last(self.stack.finding(key))
        return None if last is None else newest_event(last).finding

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it has changed lately. See `Findings.recent`."""
        within_s = seconds_of(within, least_s=0.0, most_s=TTL_S_MAX)
        finding = await self.get(key)
        since = self.clock.now() - timedelta(seconds=within_s)
        return finding if finding is not None and finding.updated_at >= since else None


def findings_of(ports: Ports) -> Finder:
    """Return the findings of a stack, for a program of its own."""
    return Finder(ports.log, ports.stack, SystemClock())
