"""Turns and retries of writers: those of one node take turns, those of several nodes back off.

Many episodes may write one aggregate at the same time. Writers of one node wait for each other and
never race; of several nodes, the loser decides again after a pause that grows with every loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from engine.validation import backoff_s, jittered_s
from streams.clock import Clock

T = TypeVar("T")

CONFLICTS_MAX: Final = 100
"""Races for one finding that a writer may lose to other nodes, in up to 50 s, before it is left for
later. Every loss is another's gain."""

CONFLICT_S: Final = 0.002
"""Longest pause after the first lost race: about what one append takes. It doubles each time."""

CONFLICT_MAX_S: Final = 0.5
"""Longest pause between two races."""


class Contended(Exception):
    """A finding is fought over without end. What is left to do is for later; nothing is away."""


class Turns:
    """The turns of one node's writers. Holds no more locks than there are writers."""

    def __init__(self) -> None:
        """Begin with nobody waiting."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write(
        self, subject: str, attempt: Callable[[], Awaitable[T | None]], *, clock: Clock, seed: str
    ) -> T:
        """Return what `attempt` comes to, once it is our turn and nobody is faster.

        Args:
            subject: what is written.
            attempt: reads it, decides and writes; None: a rival was faster.
            clock: for pauses.
            seed: the writer's own, so that rivals do not try again together.
        """
        # Who loses keeps the turn while it waits: the others here would only lose as well.
        async with self._of(subject):
            for tries in range(1, CONFLICTS_MAX + 1):
                written = await attempt()
                if written is not None:
                    return written
                pause_s = backoff_s(tries, first_s=CONFLICT_S, most_s=CONFLICT_MAX_S)
                await clock.sleep(jittered_s(pause_s, seed=f"{seed}.{tries}"))
        raise Contended(f"{subject}: lost {CONFLICTS_MAX} races for it")

    def _of(self, subject: str) -> asyncio.Lock:
        """Return the lock for writing at `subject`. It is forgotten with the last who holds it."""
        return self._locks.setdefault(subject, asyncio.Lock())
