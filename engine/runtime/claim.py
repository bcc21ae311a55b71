"""`EpisodeClaim`: the claim of one episode, as one attempt at it has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from engine.runtime.leases import Held, Keeper, log_lost
from engine.runtime.node_lease import NodeLease
from streams.errors import LeaseLost

NO_CLAIM: Final = 0
"""A revision: there is no claim."""


class Busy(Exception):
    """Another node has the claim."""


class EpisodeClaim:
    """The claim of one episode, which is made when it is needed."""

    def __init__(
        self,
        keeper: Keeper,
        key: str,
        *,
        attempt: int,
        on_lost: Callable[[], object],
        node_lease: NodeLease | None = None,
        covered_by: tuple[str, datetime] | None = None,
    ) -> None:
        """Make nothing yet; the first arguments are those of `Keeper.acquire`.

        Args:
            node_lease: what may stand for a claim; None: nothing may.
            covered_by: the lease that stands for the claim of the attempt before this one, its key
                and since when it lasts; while it lasts, the episode is busy. None: there is none,
                or this attempt is called for because it is over.
        """
        self._keeper, self._key, self._attempt = keeper, key, attempt
        self._on_lost, self._node_lease, self._covered_by = on_lost, node_lease, covered_by
        self.held: Held | None = None
        """What was made, whatever became of it; None: nothing."""
        self.covered_since: datetime | None = None
        """Since when the lease of the node lasts that stands for it, or stood until it was made."""
        self._covered_at = NO_CLAIM
        """The newest revision of any claim that the node knew when it was covered."""
        self._is_cover_lost = self._is_over = self._is_let_go = False
        self._turn = asyncio.Lock()
        """An attempt may need its claim when it is made for its age."""

    @property
    def stands(self) -> bool:
        """Whether a crash of the node is noticed: it was made, or is covered."""
        return self.held is not None or self.covered_since is not None

    @property
    def revision(self) -> int:
        """The fencing token; while it is not made, see `EpisodeStarted.claim_revision`."""
        return self.held.lease.revision if self.held else self._covered_at

    @property
    def lapse_revision(self) -> int:
        """The marker of the lapse that it replaced, as a revision; 0: there was none."""
        return self.held.lease.lapse_revision if self.held else 0

    @property
    def is_lost(self) -> bool:
        """Whether it was lost, or what stood for it."""
        return self._is_cover_lost or (self.held is not None and self.held.lost)

    def cover(self) -> bool:
        """Have the lease of the node stand for the claim; return whether it does."""
        if self._node_lease is not None:
            self.covered_since = self._node_lease.cover(self)
        if self.covered_since is not None:
            self._covered_at = self._keeper.freed.revision
        return self.covered_since is not None

    async def make(self) -> None:
        """Make the claim, unless it was made before. Raises `Busy` if another node has it."""
        async with self._turn:
            if self.held is None:
                await self._make()

    async def _make(self) -> None:
        if self._covered_by is not None:
            key, since = self._covered_by
            if await self._keeper.stands(key, since=since):  # guard: covered-episode-busy
                raise Busy(self._key)
        self.held = await self._keeper.acquire(
            self._key, attempt=self._attempt, on_lost=self._on_lost
        )
        if self.held is None:
            raise Busy(self._key)
        self._uncover()

    async def outgrow(self) -> None:
        """See `Covered.outgrow`."""
        async with self._turn:
            if self.held is not None or self._is_over:  # guard: done-work-outgrows-nothing
                return
            try:
                await self._make()
            except Busy:
                # Who has it may find the episode begun, and give it up. Who goes on with it instead
                # has to append, and that stops this attempt.
                return  # guard: busy-claim-asked-again
        if self._is_let_go and self.held is not None:
            self._keeper.forget(self.held)

    def lose_cover(self) -> None:
        """See `Covered.lose_cover`."""
        self._is_cover_lost = True
        self._uncover()
        if not self._is_let_go:
            self._on_lost()

    def check(self) -> None:
        """Raise `LeaseLost` if it, or what stands for it, cannot be trusted any more."""
        if self.held is not None:
            self.held.lease.check(monotonic_s=self._keeper.clock.monotonic_s())
        elif self._is_cover_lost:
            raise LeaseLost(self._key, revision=NO_CLAIM)
        elif self._node_lease is not None:
            self._node_lease.check(self)  # guard: cover-checked-as-claim

    def note_lost(self, error: Exception) -> None:
        """Record that another node has the key by now, or may have it."""
        is_known = not isinstance(error, LeaseLost)
        why = f"another node has it: {error}" if is_known else str(error)
        if self.held is not None:
            self._keeper.note_lost(self.held, why=why)
            return
        log_lost(self._key, why=why)
        if is_known:  # guard: distrusted-cover-calls-recovery
            self._is_over = True
            self._uncover()

    async def give_up(self, *, error: str = "") -> None:
        """Give the claim up, if it was made: the work is done, or it failed with `error`."""
        self._is_over = True
        self._uncover()
        async with self._turn:  # guard: claim-being-made-given-up
            held = self.held
        if held is None:
            return
        if error:
            await self._keeper.fail(held, error=error)
        else:
            await self._keeper.complete(held)

    def let_lapse(self) -> None:
        """Have what was not given up lapse, so that recovery follows."""
        if self.held is not None:
            self._keeper.forget(self.held)
        elif self._node_lease is not None and not self._is_over:
            self._is_let_go = True
            self._node_lease.let_go(self)  # guard: left-episode-gets-claim

    def _uncover(self) -> None:
        if self._node_lease is not None:
            self._node_lease.uncover(self)

    def __str__(self) -> str:
        return f"{self._key}.{self.revision}"
