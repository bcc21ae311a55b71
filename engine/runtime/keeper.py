"""Keeps the node's leases alive: every heartbeat of the node, in one loop.

A lease that is lost, or that cannot be renewed while it is still trusted, calls its
holder's `on_lost` at once and is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from engine import telemetry
from streams.clock import Clock
from streams.errors import LeaseLost, Unavailable
from streams.leases import Lease, Leases

BEATS_PER_TTL: Final = 3
"""Renewals per life of a lease: two may fail in a row before it is in danger."""

RENEWALS_IN_FLIGHT_MAX: Final = 256

log = structlog.get_logger("vigil.keeper")


@dataclass(eq=False)
class Held:
    """A lease that is being kept alive."""

    lease: Lease
    on_lost: Callable[[], object]
    lost: bool = False


class Keeper:
    """All leases of one node."""

    def __init__(self, leases: Leases, *, holder: str, clock: Clock) -> None:
        """Keep leases of `holder`, the node's name."""
        self._leases, self._holder, self._clock = leases, holder, clock
        self._held: dict[str, Held] = {}
        self._beat_s = leases.ttl_s / BEATS_PER_TTL
        self._room = asyncio.Semaphore(RENEWALS_IN_FLIGHT_MAX)

    async def acquire(self, key: str, *, on_lost: Callable[[], object]) -> Held | None:
        """Return the lease of `key`, kept alive from now on, or None if someone has it.

        Raises:
            Unavailable: no answer from the server.
        """
        lease = await self._leases.acquire(key, holder=self._holder)
        telemetry.leases.add(1, {"outcome": "acquired" if lease else "busy"})
        if lease is None:
            return None
        held = self._held[key] = Held(lease, on_lost)
        return held

    async def release(self, held: Held) -> None:
        """Give a lease up, so that others need not wait for it to lapse."""
        self.forget(held)
        try:
            await self._leases.release(held.lease)
        except Unavailable as error:
            log.warning("lease not released; it will lapse", key=held.lease.key, error=str(error))

    def forget(self, held: Held) -> None:
        """Stop keeping a lease alive. It lapses, and that calls for recovery."""
        if self._held.get(held.lease.key) is held:
            del self._held[held.lease.key]

    async def beat(self) -> None:
        """Renew for ever what is held."""
        while True:
            await self._clock.sleep(self._beat_s)
            due_s = self._clock.monotonic_s() + self._leases.ttl_s - self._beat_s / 2
            due = [held for held in self._held.values() if held.lease.trusted_until_s < due_s]
            await asyncio.gather(*(self._renew(held) for held in due))

    async def _renew(self, held: Held) -> None:
        try:
            async with self._room:
                held.lease = await self._leases.renew(held.lease)
        except LeaseLost as error:
            self._lose(held, str(error))
        except Unavailable as error:
            telemetry.leases.add(1, {"outcome": "renew_failed"})
            self._give_up_when_untrusted(held, error)
        else:
            telemetry.leases.add(1, {"outcome": "renewed"})

    def _give_up_when_untrusted(self, held: Held, error: Unavailable) -> None:
        next_beat_s = self._clock.monotonic_s() + self._beat_s
        if held.lease.trusted_until_s <= next_beat_s:
            self._lose(held, str(error))

    def _lose(self, held: Held, why: str) -> None:
        if self._held.get(held.lease.key) is not held:
            return
        self.forget(held)
        held.lost = True
        telemetry.leases.add(1, {"outcome": "lost"})
        log.warning("lease lost", key=held.lease.key, why=why)
        held.on_lost()
