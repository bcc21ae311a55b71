"""The port to leases: who may work on what, and until when.

**Who is authoritative.** The server, by the revision and the time-to-live of one key. No node's
wall clock takes part: a lease ends when somebody asks for it who has seen its revision stand for a
whole life (`mark_lapsed`), or `GRACE_S` later by the server's timer. `owns` asks the server;
`Lease.check` asks only the holder's own clock, and may deny too early.

    (absent) ──acquire──▶ claimed ──complete──▶ done ────▶ (absent)
                           │ ▲ └──────fail───▶ failed ──▶ (absent)
                     lapse │ └─renew
                           ▼
                         expired ──acquire──▶ claimed   (the lease is `stolen`)

A key that lapses leaves a marker, which every watcher sees, also one that was away, and which
`reclaim_expired` lists until someone takes the key over. A key that was completed or failed
is free at once and leaves none: only those who watch at that moment see how it ended.

**Trust window.** A holder trusts its lease until `trusted_until_s` on its own monotonic
clock, counted from the moment *before* the acquire or renewal was sent. The server counts
from when it stored the request, and others from when they heard of it, which is later, so the
holder always stops first.

**What a lease is for.** Thrift, not safety: two nodes that both believe they have a key
waste work but cannot corrupt anything, because every append to the journal carries the
version it was decided on, and only one of them can be right. A former owner's requests are
refused or do nothing: each names the revision that it is about.

| failure | consequence |
| --- | --- |
| renewal refused (someone else's revision) | `LeaseLost`: the task stops at once |
| renewal unanswered | tried again until the trust window closes, then the lease counts as lost |
| completing or failing unanswered | the key is free already, or lapses |
| holder dies | the key lapses after its time-to-live; the marker calls for recovery |
| holder is paused past its lease, then wakes | its next append is refused by version |
| everyone who watches is away when a key lapses | the marker waits for a day |
| holder is proven dead (`cut_short`) | the key lapses after a second, and the rest is as above |
| server restarts | keys and their remaining lives are kept; lapses happen on time or at start |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

import msgspec

from streams.errors import LeaseLost

RECLAIM_MAX: Final = 100
"""How many lapsed claims `reclaim_expired` returns by default."""

GRACE_S: Final = 1
"""How long after the end of a life the server ends it by itself, in seconds: those who watch are
first. If both asked at a time, there would be two markers, and the server's checks no revision."""

CUT_SHORT_S: Final = 1
"""What is left of the life of a claim that was cut short, in seconds."""

ERROR_CHARS_MAX: Final = 1000
"""Longest error of a failed claim, in characters; it travels in a header."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, trusted only until a local deadline that ends before the stored one does.

    The fencing token is `(attempt, revision)`. The revision grows with every acquire and renewal of
    the key; the attempt, which the journal counts, orders owners for those who know nothing of the
    bucket. A claim made on a stale read of the journal has too low an attempt, and a version check
    refuses its first append.
    """

    key: str
    holder: str
    attempt: int
    """Which go at the work this is, from 1, as the caller of `acquire` knows it."""
    revision: int
    """The key's revision."""
    lapse_revision: int
    """The revision of the marker that it replaced, of a claim that had lapsed; 0: of none."""
    trusted_until_s: float
    """On the holder's monotonic clock."""
    acquired_at: datetime

    @property
    def stolen(self) -> bool:
        """Whether it was taken over from an owner whose claim had lapsed."""
        return self.lapse_revision > 0

    def check(self, *, monotonic_s: float) -> None:
        """Raise `LeaseLost` once the claim can no longer be trusted."""
        if monotonic_s >= self.trusted_until_s:
            raise LeaseLost(self.key, revision=self.revision)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a held key in the bucket."""

    owner_node: str
    claimed_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    """By the holder's clock. Others count `life_s` from when they heard of it."""
    attempt: int = 1

    @property
    def life_s(self) -> float:
        """How long it lasts from the renewal on, in seconds."""
        return (self.lease_until - self.heartbeat_at).total_seconds()


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one key in the bucket."""

    key: str
    revision: int
    state: str
    """`claimed`, `done` (completed), `failed` or `expired` (lapsed)."""
    at: datetime
    """When the server stored it."""
    claim: Claim | None = None
    """The key's value, while it is held."""
    error: str = ""
    """Why the work failed, if it did."""


class ClaimWatch(Protocol):
    """A position in the history of the bucket, which keeps only each key's newest change."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[ClaimChange]:
        """Return the next changes in order: up to `most`, none after `wait_s` of silence.

        Survives server restarts and reconnects; a change that a newer one of its key replaced in
        the meantime is left out.
        """


class Leases(Protocol):
    """Claims with an expiry, one holder per key."""

    @property
    def ttl_s(self) -> float:
        """How long a lease lasts after its last renewal."""

    async def acquire(self, key: str, *, holder: str, attempt: int = 1) -> Lease | None:
        """Return a new lease, or None if someone (the same holder included) has the key.

        `attempt` is stored with the claim, for the fencing token and for people. A call that is
        canceled leaves no claim, unless there is no answer: then that lapses by itself.

        Raises:
            Unavailable: no answer. Should the claim have been stored, it lapses by itself.
        """

    async def renew(self, lease: Lease) -> Lease:
        """Return `lease` with a full life again.

        Raises:
            LeaseLost: it lapsed or was taken over.
            Unavailable: no answer; the lease is as it was. Try again while it is trusted.
        """

    async def complete(self, lease: Lease) -> None:
        """Give the key up with the work done: free at once, no marker. Does nothing if lost.

        Raises:
            Unavailable: no answer; the key lapses by itself.
        """

    async def fail(self, lease: Lease, *, error: str) -> None:
        """Give the key up, and raise, as `complete` does, with the work failed for good.

        Watchers see `error`, cut to `ERROR_CHARS_MAX` characters.
        """

    async def owns(self, lease: Lease) -> bool:
        """Return whether the server has the key, now, at the lease's revision.

        False after a renewal that was stored and never answered, until `renew` settles it.
        """

    async def standing(self, key: str) -> ClaimChange | None:
        """Return what stands under `key` by the server's leader; None: it was never held, or free.

        A claim that was given up is free; one that has lapsed stands as `expired` until someone
        takes the key over.

        Raises:
            Unavailable: no answer.
        """

    async def reclaim_expired(self, *, limit: int = RECLAIM_MAX) -> Sequence[ClaimChange]:
        """Return the lapses that nobody has taken over yet, oldest first, up to `limit`.

        For looking now and then instead of watching. A replica may answer, so what was taken over a
        moment ago may still be listed; `acquire` settles whose it is.
        """

    async def cut_short(self, *, holder: str) -> Sequence[str]:
        """Have each claim of `holder` lapse after `CUT_SHORT_S`; return their keys.

        Only for who can prove that no process of this name lives. What follows is what follows from
        any lapse; a claim that was renewed or given up meanwhile is left as it is.

        Raises:
            Unavailable: no answer. What was not cut short lapses in its own time; call again.
        """

    async def mark_lapsed(self, key: str, revision: int) -> None:
        """End the claim of `key` at `revision`, as the server does when nobody renews it.

        Only for who has seen that revision stand for as long as it lasts, on a clock of its own: no
        need to wait for the server to look. A claim that was renewed or ended meanwhile is left as
        it is.

        Raises:
            Unavailable: no answer; the server ends it in its own time.
        """

    def watch(self, *, after: int = 0) -> AbstractAsyncContextManager[ClaimWatch]:
        """Return the changes after revision `after`: first what stands now, then what comes."""


def error_shown(error: str) -> str:
    """Return what watchers see of `error`: valid Unicode, up to `ERROR_CHARS_MAX` characters."""
    return error[:ERROR_CHARS_MAX].encode(errors="replace").decode()
