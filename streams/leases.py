"""The port to leases: who may work on what, and until when.

**Who is authoritative.** The server, by the revision and the time-to-live of one key.
No node's wall clock takes part: a lease ends when the server's timer says so.

    (absent) ──acquire──▶ held ──release──▶ (absent)
                           │ ▲
                     lapse │ └─renew
                           ▼
                         lapsed ──acquire──▶ held

A key that lapses leaves a marker, which every watcher sees, also one that was away.
A release leaves none.

**Trust window.** A holder trusts its lease until `trusted_until_s` on its own monotonic
clock, counted from the moment *before* the acquire or renewal was sent. The server counts
from when it stored the request, which is later, so the holder always stops first.

**What a lease is for.** Thrift, not safety: two nodes that both believe they hold a key
waste work but cannot corrupt anything, because every append to the journal carries the
version it was decided on, and only one of them can be right.

| failure | consequence |
| --- | --- |
| renewal refused (someone else's revision) | `LeaseLost`: the task stops at once |
| renewal unanswered | tried again until the trust window closes, then `LeaseLost` |
| holder dies | the key lapses after its time-to-live; the marker calls for recovery |
| holder is paused past its lease, then wakes | its next append is refused by version |
| server restarts | keys and their remaining lives are kept; lapses happen on time or at start |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

import msgspec

from streams.errors import LeaseLost


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, trusted only until a local deadline that ends before the stored one does."""

    key: str
    holder: str
    revision: int
    """The key's revision: the fencing token. Grows with every acquire and renewal."""
    trusted_until_s: float
    """On the holder's monotonic clock."""
    acquired_at: datetime

    def check(self, *, monotonic_s: float) -> None:
        """Raise `LeaseLost` once the claim can no longer be trusted."""
        if monotonic_s >= self.trusted_until_s:
            raise LeaseLost(self.key, revision=self.revision)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What the bucket says about one key: the value of a held lease."""

    owner_node: str
    claimed_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    """By the holder's clock; for people. The server's own timer decides."""


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one key in the bucket."""

    key: str
    revision: int
    state: str
    """`claimed`, `done` (released) or `expired` (lapsed)."""
    at: datetime
    """When the server stored it."""
    claim: Claim | None = None
    """What the key says, while it is held."""


class ClaimWatch(Protocol):
    """A position in the history of the bucket, which keeps only each key's newest change."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[ClaimChange]:
        """Return the next changes in order: up to `most`, none after `wait_s` of silence.

        Survives server restarts and reconnects; a change that a newer one of its key
        replaced in the meantime is left out.
        """


class Leases(Protocol):
    """Claims with an expiry, one holder per key."""

    @property
    def ttl_s(self) -> float:
        """How long a lease lasts after its last renewal."""

    async def acquire(self, key: str, *, holder: str) -> Lease | None:
        """Return a new lease, or None if someone (the same holder included) has the key.

        Raises:
            Unavailable: no answer. Should the claim have been stored, it lapses by itself.
        """

    async def renew(self, lease: Lease) -> Lease:
        """Return `lease` with a full life again.

        Raises:
            LeaseLost: it lapsed or was taken over.
            Unavailable: no answer; the lease is as it was. Try again while it is trusted.
        """

    async def release(self, lease: Lease) -> None:
        """Give the key up early, leaving no marker. Releasing a lost lease does nothing.

        Raises:
            Unavailable: no answer; the key lapses by itself.
        """

    def watch(self, *, after: int = 0) -> AbstractAsyncContextManager[ClaimWatch]:
        """Return the changes after revision `after`: first what stands now, then what comes."""
