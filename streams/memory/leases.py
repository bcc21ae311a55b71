"""Leases in a dict. The stack's one clock plays the server's timer, which may be late."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from streams.clock import Clock
from streams.errors import LeaseLost
from streams.memory.watch import MemoryWatch, Watchers
from streams.ports.leases import CUT_SHORT_S, RECLAIM_MAX, Claim, ClaimChange, Lease, error_shown

MARKER_KEPT_S: Final = 24 * 3600.0
"""How long a lapse stays visible to watchers that were away, as on the server."""


@dataclass(frozen=True, kw_only=True)
class _Stored:
    change: ClaimChange
    ends_s: float
    """On the monotonic clock: a claim lapses then, a marker is forgotten then."""


class MemoryLeases:
    """See `streams.ports.leases.Leases`. What the clock has ended is settled before every look."""

    def __init__(self, clock: Clock, *, ttl_s: float, late_s: float = 0.0) -> None:
        """Hold none yet. What is over lapses by itself `late_s` after its end, in seconds."""
        self._clock = clock
        self._late_s = late_s
        self._ttl_s = ttl_s
        self._revision = 0
        self._bucket: dict[str, _Stored] = {}
        self._watchers: Watchers[ClaimChange] = Watchers(clock)

    @property
    def ttl_s(self) -> float:
        """See `Leases.ttl_s`."""
        return self._ttl_s

    async def acquire(self, key: str, *, holder: str, attempt: int = 1) -> Lease | None:
        """See `Leases.acquire`."""
        self._settle()
        stored = self._bucket.get(key)
        if stored is not None and stored.change.state == "claimed":  # guard: held-key-busy
            return None
        lease = Lease(
            key=key,
            holder=holder,
            attempt=attempt,
            revision=0,
            lapse_revision=stored.change.revision if stored is not None else 0,
            trusted_until_s=0.0,
            acquired_at=self._clock.now(),
        )
        return self._hold(lease)

    def claimed(self) -> dict[str, str]:
        """Return the keys whose claims nobody has found lapsed, each with its holder."""
        claims = ((key, stored.change.claim) for key, stored in self._bucket.items())
        return {key: claim.owner_node for key, claim in claims if claim is not None}

    async def renew(self, lease: Lease) -> Lease:
        """See `Leases.renew`."""
        if not await self.owns(lease):
            raise LeaseLost(lease.key, revision=lease.revision)
        return self._hold(lease)

    async def complete(self, lease: Lease) -> None:
        """See `Leases.complete`."""
        if await self.owns(lease):
            self._end(lease.key, state="done")

    async def fail(self, lease: Lease, *, error: str) -> None:
        """See `Leases.fail`."""
        if await self.owns(lease):
            self._end(lease.key, state="failed", error=error_shown(error))

    async def owns(self, lease: Lease) -> bool:
        """See `Leases.owns`."""
        self._settle()
        stored = self._bucket.get(lease.key)
        if stored is None or stored.change.claim is None:
            return False
        return stored.change.revision == lease.revision  # guard: former-owner-frees-nothing

    async def standing(self, key: str) -> ClaimChange | None:
        """See `Leases.standing`."""
        self._settle()
        stored = self._bucket.get(key)
        return stored.change if stored is not None else None

    async def reclaim_expired(self, *, limit: int = RECLAIM_MAX) -> Sequence[ClaimChange]:
        """See `Leases.reclaim_expired`."""
        self._settle()
        standing = self._standing(after=0)
        return [change for change in standing if change.state == "expired"][:limit]

    async def cut_short(self, *, holder: str) -> Sequence[str]:
        """See `Leases.cut_short`."""
        self._settle()
        held = [key for key, owner in self.claimed().items() if owner == holder]
        now, ends_s = self._clock.now(), self._clock.monotonic_s() + CUT_SHORT_S + self._late_s
        lease_until = now + timedelta(seconds=CUT_SHORT_S)
        for key in held:
            claim = self._bucket[key].change.claim
            assert claim is not None, "it is held"
            short = msgspec.structs.replace(claim, heartbeat_at=now, lease_until=lease_until)
            change = self._change(key, state="claimed", at=now, claim=short)
            self._bucket[key] = _Stored(change=change, ends_s=ends_s)
            self._watchers.tell(change)
        return held

    async def mark_lapsed(self, key: str, revision: int) -> None:
        """See `Leases.mark_lapsed`."""
        self._settle()
        stored = self._bucket.get(key)
        if stored is None or stored.change.state != "claimed":
            return
        if stored.change.revision == revision:  # guard: memory-renewed-claim-not-lapsed
            del self._bucket[key]
            self._lapse(key, late_s=0.0, ends_s=self._clock.monotonic_s() + MARKER_KEPT_S)

    @asynccontextmanager
    async def watch(self, *, after: int = 0) -> AsyncIterator[MemoryWatch[ClaimChange]]:
        """See `Leases.watch`."""
        self._settle()
        standing = self._standing(after=after)
        with self._watchers.watching(
            standing, settle=self._settle, next_due_s=self._next_end_s
        ) as watch:
            yield watch

    def _standing(self, *, after: int) -> Sequence[ClaimChange]:
        """Return each key's newest change, if it is past `after`, oldest first."""
        changes = (stored.change for stored in self._bucket.values())
        return sorted((c for c in changes if c.revision > after), key=lambda c: c.revision)

    def _hold(self, lease: Lease, *, life_s: float | None = None) -> Lease:
        life_s = life_s or self._ttl_s
        now, trusted_until_s = self._clock.now(), self._clock.monotonic_s() + life_s
        claim = Claim(
            owner_node=lease.holder,
            claimed_at=lease.acquired_at,
            heartbeat_at=now,
            lease_until=now + timedelta(seconds=life_s),
            attempt=lease.attempt,
        )
        change = self._change(lease.key, state="claimed", at=now, claim=claim)
        ends_s = trusted_until_s + self._late_s
        self._bucket[lease.key] = _Stored(change=change, ends_s=ends_s)
        self._watchers.tell(change)
        return msgspec.structs.replace(
            lease, revision=change.revision, trusted_until_s=trusted_until_s
        )

    def _end(self, key: str, *, state: str, error: str = "") -> None:
        del self._bucket[key]
        self._watchers.tell(self._change(key, state=state, at=self._clock.now(), error=error))

    def _change(
        self, key: str, *, state: str, at: datetime, claim: Claim | None = None, error: str = ""
    ) -> ClaimChange:
        self._revision += 1
        return ClaimChange(
            key=key, revision=self._revision, state=state, at=at, claim=claim, error=error
        )

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
