"""The leases of a node: `Keeper` renews all of them in one loop.

A lease that is lost, or not renewed in time, calls its `on_lost` at once and is forgotten. Outcomes
are counted (`vigil.leases`): acquired, steal, busy, renewed, renew_failed, lost, completed, failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from engine import telemetry
from streams.clock import Clock
from streams.errors import LeaseLost, Unavailable
from streams.ports.leases import ClaimChange, Lease, Leases

BEATS_PER_TTL: Final = 3
"""Renewals per life of a lease: two may fail in a row before it is in danger."""

LATE_MAX: Final = 0.5
"""How late a beat may be without a warning, in lives of a lease: a little later, and it lapses."""

RENEWALS_IN_FLIGHT_MAX: Final = 256


log = structlog.get_logger("vigil.leases")


@dataclass(eq=False)
class Held:
    """A lease that is renewed."""

    lease: Lease
    on_lost: Callable[[], object]
    lost: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked for each request about the lease: the next one must name the revision it leaves."""


class LeaseEvents:
    """Keys that were given up or lapsed, for those of this node that wait for them.

    The first token of a key stands for all keys that begin with it.
    """

    def __init__(self) -> None:
        self.revision = 0
        """The newest revision of the bucket that was heard of, in changes and in answers."""
        self._freed: dict[str, asyncio.Event] = {}

    def of(self, key: str) -> asyncio.Event:
        """Return an event that is set when `key` gets free after now."""
        return self._freed.setdefault(key, asyncio.Event())

    def handle(self, change: ClaimChange) -> None:
        """Take note of a change of any claim."""
        self.know(change.revision)
        if change.state != "claimed":
            self.free(change.key)

    def know(self, revision: int) -> None:
        """Take note of a revision; what it changed may not have been heard of yet."""
        self.revision = max(self.revision, revision)

    def free(self, key: str) -> None:
        """Set the event of `key`, if anyone waits for it."""
        for each in {key, key.partition(".")[0]}:
            if each in self._freed:
                self._freed.pop(each).set()


class Keeper:
    """All leases of one node, and what it hears of those of others."""

    def __init__(
        self, leases: Leases, *, holder: str, clock: Clock, freed: LeaseEvents | None = None
    ) -> None:
        """Keep none yet; without `freed` it hears of no other lease."""
        self._leases, self._holder, self.clock = leases, holder, clock
        self.ttl_s = leases.ttl_s
        self.freed = freed or LeaseEvents()
        self._held: dict[str, Held] = {}
        self._beat_s = leases.ttl_s / BEATS_PER_TTL
        self._room = asyncio.Semaphore(RENEWALS_IN_FLIGHT_MAX)

    async def acquire(
        self, key: str, *, attempt: int = 1, on_lost: Callable[[], object]
    ) -> Held | None:
        """Acquire the lease of `key` and renew it from now on; None if another node has it.

        `attempt` counts from 1. `on_lost` is called once, when the lease cannot be relied on any
        more.
        """
        asked_s = self.clock.monotonic_s()
        lease = await self._leases.acquire(key, holder=self._holder, attempt=attempt)
        outcome = {"outcome": _outcome(lease)}
        telemetry.lease_acquire_duration.record(self.clock.monotonic_s() - asked_s, outcome)
        telemetry.leases.add(1, outcome)
        if lease is None:
            return None
        self.freed.know(lease.revision)  # guard: own-lease-tells-revision
        before = self._held.get(key)
        # guard: self-takeover-stops-own
        if before is not None:  # It lapsed while this node was frozen, and nobody has noticed yet.
            self._lose(before, f"this node has taken it over at revision {lease.revision}")
        held = self._held[key] = Held(lease, on_lost)
        return held

    def check(self, held: Held) -> None:
        """Raise `LeaseLost` if a lease cannot be relied on any more."""
        if held.lost:
            raise LeaseLost(held.lease.key, revision=held.lease.revision)
        held.lease.check(monotonic_s=self.clock.monotonic_s())

    async def stands(self, key: str, *, since: datetime) -> bool:
        """Return whether the lease of `key` that was acquired at `since` lasts, for the server."""
        return await stands(self._leases, key, since=since)

    async def complete(self, held: Held) -> None:
        """Give a lease up with the work done, so that others need not wait for it to lapse."""
        await self._give_up(held, self._leases.complete, outcome="completed")

    async def fail(self, held: Held, *, error: str) -> None:
        """Give a lease up as `complete` does, with the work failed for good."""
        await self._give_up(held, partial(self._leases.fail, error=error), outcome="failed")

    def note_lost(self, held: Held, *, why: str) -> None:
        """Stop renewing a lease that another node has by now, and log it."""
        self.forget(held)
        held.lost = True
        log_lost(held.lease.key, why=why)

    def forget(self, held: Held) -> None:
        """Stop renewing a lease. It lapses, and that calls for recovery."""
        if self._keeps(held):
            del self._held[held.lease.key]

    async def beat(self) -> None:
        """Renew all leases, for ever."""
        while True:
            await self._wait_beat()
            due_s = self.clock.monotonic_s() + self._leases.ttl_s - self._beat_s / 2
            due = [held for held in self._held.values() if held.lease.trusted_until_s < due_s]
            await asyncio.gather(*(self._renew(held) for held in due))

    async def _wait_beat(self) -> None:
        due_s = self.clock.monotonic_s() + self._beat_s
        await self.clock.sleep(self._beat_s)
        late_s = self.clock.monotonic_s() - due_s
        if late_s > self._leases.ttl_s * LATE_MAX:  # guard: blocked-loop-told
            why = "a callback or a tool waits without `await`; use async, or asyncio.to_thread"
            message = f"the event loop was blocked for {late_s:.1f} s: {why}"
            log.warning(message, lease_s=self._leases.ttl_s)

    async def _give_up(
        self, held: Held, give_up: Callable[[Lease], Awaitable[None]], *, outcome: str
    ) -> None:
        self.forget(held)
        try:
            async with held.turn:  # guard: lease-ended-at-renewed-revision
                await give_up(held.lease)
        except Unavailable as error:
            log.warning("lease not given up; it will lapse", key=held.lease.key, error=str(error))
        else:
            telemetry.leases.add(1, {"outcome": outcome})

    async def _renew(self, held: Held) -> None:
        try:
            async with self._room, held.turn:
                if not self._keeps(held):
                    return
                held.lease = await self._leases.renew(held.lease)
                self.freed.know(held.lease.revision)  # guard: renewal-tells-revision
        except LeaseLost as error:
            self._lose(held, str(error))
        except Unavailable as error:
            telemetry.leases.add(1, {"outcome": "renew_failed"})
            self._give_up_when_untrusted(held, error)
        else:
            telemetry.leases.add(1, {"outcome": "renewed"})

    def _give_up_when_untrusted(self, held: Held, error: Unavailable) -> None:
        next_beat_s = self.clock.monotonic_s() + self._beat_s
        if held.lease.trusted_until_s <= next_beat_s:  # guard: untrusted-lease-given-up
            self._lose(held, str(error))

    def _lose(self, held: Held, why: str) -> None:
        if not self._keeps(held):
            return
        self.note_lost(held, why=why)
        held.on_lost()

    def _keeps(self, held: Held) -> bool:
        return self._held.get(held.lease.key) is held


def log_lost(key: str, *, why: str) -> None:
    """Log that this node has `key` no more."""
    telemetry.leases.add(1, {"outcome": "lost"})
    log.warning("claim_lost", key=key, why=why)


async def stands(leases: Leases, key: str, *, since: datetime) -> bool:
    """Return whether the lease of `key` that was acquired at `since` lasts, for the server."""
    standing = await leases.standing(key)
    claim = standing.claim if standing is not None else None
    return claim is not None and claim.claimed_at == since


@asynccontextmanager
async def lease_of(
    leases: Leases, key: str, *, holder: str, clock: Clock
) -> AsyncIterator[Callable[[], None] | None]:
    """Have the lease of `key` for as long as something lasts that is no part of a node.

    Yields what raises `LeaseLost` as soon as the lease cannot be relied on; None: another process
    has it.
    """
    keeper = Keeper(leases, holder=holder, clock=clock)
    held = await keeper.acquire(key, on_lost=lambda: None)
    if held is None:
        yield None
        return
    beating = asyncio.create_task(keeper.beat())
    try:
        yield partial(keeper.check, held)
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await keeper.complete(held)


def _outcome(lease: Lease | None) -> str:
    if lease is None:
        return "busy"
    return "steal" if lease.stolen else "acquired"
