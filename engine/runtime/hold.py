"""A node's hold on one episode: its claim, made when it is first needed.

An episode that is over with its first commit needs no claim: the version lets one writer
through, and until its end has been told, whatever woke it is unanswered and comes again. Any
other is claimed before that commit, so that its node's end is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.runtime.keeper import Held, Keeper
from streams.errors import LeaseLost

NO_CLAIM: Final = 0
"""As a revision: there is no claim."""


class Busy(Exception):
    """Someone else has the claim."""


class Hold:
    """The claim of one episode, or none so far."""

    def __init__(
        self, keeper: Keeper, key: str, *, attempt: int, on_lost: Callable[[], object]
    ) -> None:
        """Claim nothing yet.

        Args:
            keeper: the node's.
            key: the episode's.
            attempt: which go at the episode this is, from 1.
            on_lost: called once, as soon as the claim cannot be relied on any more.
        """
        self._keeper, self._key, self._attempt = keeper, key, attempt
        self._on_lost = on_lost
        self._held: Held | None = None

    @property
    def revision(self) -> int:
        """The claim's fencing token; `NO_CLAIM` without one."""
        return self._held.lease.revision if self._held else NO_CLAIM

    @property
    def is_stolen(self) -> bool:
        """Whether the claim was taken over from a node whose claim had lapsed."""
        return self._held is not None and self._held.lease.stolen

    @property
    def is_lost(self) -> bool:
        """Whether the claim was lost."""
        return self._held is not None and self._held.lost

    async def claim(self) -> None:
        """Make the claim, unless it was made before.

        Raises:
            Busy: someone else has it.
            Unavailable: no answer from the server.
        """
        if self._held is None:
            self._held = await self._keeper.acquire(
                self._key, attempt=self._attempt, on_lost=self._on_lost
            )
        if self._held is None:
            raise Busy(self._key)

    def check(self, *, monotonic_s: float) -> None:
        """Raise `LeaseLost` if there is a claim that cannot be trusted any more."""
        if self._held is not None:
            self._held.lease.check(monotonic_s=monotonic_s)

    def note_lost(self, error: Exception) -> None:
        """Say that another node has the episode by now."""
        if self._held is not None:
            why = str(error) if isinstance(error, LeaseLost) else f"another node has it: {error}"
            self._keeper.note_lost(self._held, why=why)

    async def give_up(self, *, error: str = "") -> None:
        """Give the claim up, if there is one: the work is done, or it failed with `error`."""
        if self._held is None:
            return
        if error:
            await self._keeper.fail(self._held, error=error)
        else:
            await self._keeper.complete(self._held)

    def let_lapse(self) -> None:
        """Keep the claim no longer, if it was not given up. That calls for recovery."""
        if self._held is not None:
            self._keeper.forget(self._held)

    def __str__(self) -> str:
        """Return the key and the revision, unique to this claim."""
        return f"{self._key}.{self.revision}"
