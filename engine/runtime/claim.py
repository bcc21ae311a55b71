"""`EpisodeClaim`: the claim of one episode, as one attempt at it has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.runtime.leases import Held, Keeper
from streams.errors import LeaseLost

NO_CLAIM: Final = 0
"""A revision: there is no claim."""


class Busy(Exception):
    """Another node has the claim."""


class EpisodeClaim:
    """The claim of one episode, which is made when it is needed."""

    def __init__(
        self, keeper: Keeper, key: str, *, attempt: int, on_lost: Callable[[], object]
    ) -> None:
        """Make nothing yet; the arguments are those of `Keeper.acquire`."""
        self._keeper, self._key, self._attempt = keeper, key, attempt
        self._on_lost = on_lost
        self.held: Held | None = None
        """What was made, whatever became of it; None: nothing."""

    @property
    def revision(self) -> int:
        """The fencing token; `NO_CLAIM` if it was not made."""
        return self.held.lease.revision if self.held else NO_CLAIM

    @property
    def is_stolen(self) -> bool:
        """Whether it was taken over from a node whose claim had lapsed."""
        return self.held is not None and self.held.lease.stolen

    @property
    def is_lost(self) -> bool:
        """Whether it was lost."""
        return self.held is not None and self.held.lost

    async def make(self) -> None:
        """Make the claim. Raises `Busy` if another node has it."""
        self.held = await self._keeper.acquire(
            self._key, attempt=self._attempt, on_lost=self._on_lost
        )
        if self.held is None:
            raise Busy(self._key)

    def check(self) -> None:
        """Raise `LeaseLost` if the claim was made and cannot be trusted any more."""
        if self.held is not None:
            self.held.lease.check(monotonic_s=self._keeper.clock.monotonic_s())

    def note_lost(self, error: Exception) -> None:
        """Record that another node has the key by now."""
        if self.held is not None:
            why = str(error) if isinstance(error, LeaseLost) else f"another node has it: {error}"
            self._keeper.note_lost(self.held, why=why)

    async def give_up(self, *, error: str = "") -> None:
        """Give the claim up, if it was made: the work is done, or it failed with `error`."""
        if self.held is None:
            return
        if error:
            await self._keeper.fail(self.held, error=error)
        else:
            await self._keeper.complete(self.held)

    def let_lapse(self) -> None:
        """Stop renewing a claim that was not given up, so that recovery follows."""
        if self.held is not None:
            self._keeper.forget(self.held)

    def __str__(self) -> str:
        return f"{self._key}.{self.revision}"
