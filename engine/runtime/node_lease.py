"""`NodeLease`: the lease of a node itself, which stands for the claims of what it began just now.

    covered ──older than `GROWN_S`, or let go──▶ has a claim of its own
       │
       └──the lease is lost──▶ told so, and stopped

Most work is over sooner than a claim of its own would be made, renewed and given up. So it is
covered: who sees that the lease of the node has ended calls another node to it. What lasts gets a
claim of its own, or what watches those who are covered would have to remember it for long.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final, Protocol

import structlog

from engine.runtime.gather import gather_bounded
from engine.runtime.leases import Held, Keeper
from engine.runtime.tasks import wait_first
from streams.errors import Unavailable
from streams.keys import node_claim

GROWN_S: Final = 2.0
"""Age at which what is covered gets a claim of its own, in seconds; a third of a short lease. Five
strict steps take 0.2 s with 64 in flight, and 1.2 s with 512."""

CLAIMS_IN_FLIGHT_MAX: Final = 64
"""Claims that are made at a time for what has grown old."""

log = structlog.get_logger("vigil.leases")


class Covered(Protocol):
    """What is covered by the lease of its node."""

    async def outgrow(self) -> None:
        """Make a claim of its own. If it cannot, or raises `Unavailable`, it is asked again."""

    def lose_cover(self) -> None:
        """Stop, as if a claim of its own was lost."""


class NodeLease:
    """The lease of one node. Without it, nothing is covered."""

    def __init__(self, keeper: Keeper, node: str) -> None:
        self._keeper, self._key = keeper, node_claim(node)
        self._grown_s = min(GROWN_S, keeper.ttl_s / 3)
        self._held: Held | None = None
        self._covered: dict[Covered, float] = {}
        """Since when, on the monotonic clock; oldest first."""
        self._let_go: set[Covered] = set()

    def cover(self, work: Covered) -> datetime | None:
        """Cover `work` until `uncover`; return since when the lease lasts, None: there is none."""
        held = self._held
        if held is None or not self._is_trusted(held):
            return None
        self._covered[work] = self._keeper.clock.monotonic_s()
        return held.lease.acquired_at

    def uncover(self, work: Covered) -> None:
        """Cover `work` no longer: it is done, or has a claim of its own."""
        self._covered.pop(work, None)
        self._let_go.discard(work)

    def let_go(self, work: Covered) -> None:
        """Have a claim made for `work`, which nobody renews: it lapses, and calls for recovery."""
        if work in self._covered:
            self._let_go.add(work)

    def check(self, work: Covered) -> None:
        """Raise `LeaseLost` if `work` is covered by a lease that cannot be relied on any more."""
        if work in self._covered and self._held is not None:
            self._keeper.check(self._held)

    async def keep(self) -> None:
        """Have the lease for ever; acquire it again once it is lost and has lapsed."""
        while True:
            freed, lost = self._keeper.freed.of(self._key), asyncio.Event()
            held = await self._keeper.acquire(self._key, on_lost=lost.set)
            if held is None:  # Of a process of this name, which may have died.
                await wait_first(freed.wait(), self._keeper.clock.sleep(self._grown_s))
                continue
            self._held = held
            try:
                await wait_first(lost.wait(), self._make_claims(held))
            except asyncio.CancelledError:
                self._covered.clear()  # guard: ending-node-cuts-off-itself
                raise
            finally:
                self._keeper.forget(held)  # guard: lease-ends-with-its-keeping
                self._lose()

    async def give_up(self) -> None:
        """Give the lease up: nothing is covered any more."""
        held, self._held = self._held, None
        if held is not None:
            await self._keeper.complete(held)

    def _lose(self) -> None:
        self._held = None
        covered, self._covered = self._covered, {}
        self._let_go.clear()
        for each in covered:
            each.lose_cover()

    async def _make_claims(self, held: Held) -> None:
        """Make claims of their own for what has grown old, or was let go.

        Return once the lease cannot be trusted, as after its node stood still: others may have gone
        on with what it covered, and be done.
        """
        clock = self._keeper.clock
        while True:
            await clock.sleep(self._grown_s / 2)
            if not self._is_trusted(held):  # guard: frozen-node-claims-nothing
                return
            grown_s = clock.monotonic_s() - self._grown_s
            due = [each for each, since_s in self._covered.items() if since_s <= grown_s]
            due += [each for each in self._let_go if each not in due]
            await gather_bounded(_outgrow, due, in_flight_max=CLAIMS_IN_FLIGHT_MAX)

    def _is_trusted(self, held: Held) -> bool:
        return not held.lost and self._keeper.clock.monotonic_s() < held.lease.trusted_until_s


async def _outgrow(work: Covered) -> None:
    try:
        await work.outgrow()
    except Unavailable as error:
        log.debug("no claim yet; asked again soon", error=str(error))
