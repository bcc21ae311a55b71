"""Reads findings from the journal, each by its key: what it says is what is, without delay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from engine import dryrun
from engine.durations import Duration, seconds_of
from engine.finding import TTL_S_MAX
from engine.runtime.custodian import newest_event
from streams.clock import Clock, SystemClock
from streams.errors import BadName
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
    prefix: str = ""
    """Of the keys that the dry run which asks keeps its findings under; empty: it keeps none."""

    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding. See `Findings.get`."""
        kept = await self._kept(key)
        return await self._newest(self.stack.finding(key)) if kept is None else kept

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it has changed lately. See `Findings.recent`."""
        within_s = seconds_of(within, least_s=0.0, most_s=TTL_S_MAX)
        finding = await self.get(key)
        since = self.clock.now() - timedelta(seconds=within_s)
        return finding if finding is not None and finding.updated_at >= since else None

    async def _kept(self, key: str) -> Finding | None:
        """Return what dry runs with our prefix have kept under `key`, as if it was meant."""
        if not self.prefix:
            return None
        try:
            subject = self.stack.finding(dryrun.key_apart(key, self.prefix))
        except BadName:  # No finding can be kept under this one, however long `key` may be.
            return None
        finding = await self._newest(subject)
        return None if finding is None else dryrun.as_meant(finding, self.prefix)

    async def _newest(self, subject: str) -> Finding | None:
        last = await self.log.last(subject)
        return None if last is None else newest_event(last).finding


def findings_of(ports: Ports) -> Finder:
    """Return the findings of a stack, for a program of its own."""
    return Finder(ports.log, ports.stack, SystemClock())
