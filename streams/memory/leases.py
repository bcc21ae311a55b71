"""Leases in a dict. The stack's one clock plays the server's timer."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from streams.clock import Clock
from streams.errors import LeaseLost
from streams.leases import Claim, ClaimChange, Lease
from streams.memory.watch import MemoryWatch, Watchers

MARKER_KEPT_S: Final = 24 * 3600.0
"""How long a lapse stays visible to watchers that were away, as on the server."""


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """What the bucket says about one key, and until when."""

    change: ClaimChange
    ends_s: float
    """On the monotonic clock: a claim lapses then, a marker is forgotten then."""


class MemoryLeases:
    """See `streams.leases.Leases`. What the clock has ended is settled before every look."""

    def __init__(self, clock: Clock, *, ttl_s: float) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._revision = 0
        self._bucket: dict[str, _Stored] = {}
        self._watchers: Watchers[ClaimChange] = Watchers(clock)

    @property
    def ttl_s(self) -> float:
        """See `Leases.ttl_s`."""
        return self._ttl_s

    async def acquire(self, key: str, *, holder: str) -> Lease | None:
        """See `Leases.acquire`."""
        self._settle()
        stored = self._bucket.get(key)
        if stored is not None and stored.change.state == "claimed":
            return None
        return self._hold(key, holder=holder, acquired_at=self._clock.now())

    async def renew(self, lease: Lease) -> Lease:
        """See `Leases.renew`."""
        self._settle()
        if not self._is_held(lease):
            raise LeaseLost(lease.key, revision=lease.revision)
        return self._hold(lease.key, holder=lease.holder, acquired_at=lease.acquired_at)

    async def release(self, lease: Lease) -> None:
        """See `Leases.release`."""
        self._settle()
        if self._is_held(lease):
            del self._bucket[lease.key]
            self._watchers.tell(self._change(lease.key, state="done", at=self._clock.now()))

    @asynccontextmanager
    async def watch(self, *, after: int = 0) -> AsyncIterator[MemoryWatch[ClaimChange]]:
        """See `Leases.watch`."""
        self._settle()
        changes = (stored.change for stored in self._bucket.values())
        standing = sorted((c for c in changes if c.revision > after), key=lambda c: c.revision)
        with self._watchers.watching(
            standing, settle=self._settle, next_due_s=self._next_end_s
        ) as watch:
            yield watch

    def _hold(self, key: str, *, holder: str, acquired_at: datetime) -> Lease:
        now, now_s = self._clock.now(), self._clock.monotonic_s()
        ends_s = now_s + self._ttl_s
        claim = Claim(
            owner_node=holder,
            claimed_at=acquired_at,
            heartbeat_at=now,
            lease_until=now + timedelta(seconds=self._ttl_s),
        )
        change = self._change(key, state="claimed", at=now, claim=claim)
        self._bucket[key] = _Stored(change=change, ends_s=ends_s)
        self._watchers.tell(change)
        return Lease(
            key=key,
            holder=holder,
            revision=change.revision,
            trusted_until_s=ends_s,
            acquired_at=acquired_at,
        )

    def _is_held(self, lease: Lease) -> bool:
        stored = self._bucket.get(lease.key)
        return stored is not None and stored.change.revision == lease.revision

    def _change(
        self, key: str, *, state: str, at: datetime, claim: Claim | None = None
    ) -> ClaimChange:
        self._revision += 1
        return ClaimChange(key=key, revision=self._revision, state=state, at=at, claim=claim)

    def _next_end_s(self) -> float:
        return min((stored.ends_s for stored in self._bucket.values()), default=math.inf)

    def _settle(self) -> None:
        """Let everything end whose time has come, in the order in which it ended."""
        now_s = self._clock.monotonic_s()
        ended = [(s.ends_s, s.change.revision, key) for key, s in self._bucket.items()]
        for ends_s, _, key in sorted(each for each in ended if each[0] <= now_s):
            stored = self._bucket.pop(key)
            if stored.change.state == "claimed":
                self._lapse(key, late_s=now_s - ends_s, ends_s=ends_s + MARKER_KEPT_S)

    def _lapse(self, key: str, *, late_s: float, ends_s: float) -> None:
        at = self._clock.now() - timedelta(seconds=late_s)
        change = self._change(key, state="expired", at=at)
        if ends_s > self._clock.monotonic_s():
            self._bucket[key] = _Stored(change=change, ends_s=ends_s)
        self._watchers.tell(change)
