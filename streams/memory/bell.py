"""Waits until something arrives or the clock says that time is up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from streams.clock import Clock

T = TypeVar("T")


def never_s() -> float:
    """Return the monotonic time at which nothing happens."""
    return math.inf


def never() -> bool:
    """Return False."""
    return False


def any_subject(_subject: str) -> bool:
    """Return True."""
    return True


class Bell:
    """Wakes everyone who waits, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], Callable[[str], bool]] = {}

    def ring(self, subject: str | None = None) -> None:
        """Wake everyone who waits now; with `subject`, those who wait for messages on it."""
        for rung, matches in list(self._waiting.items()):
            if subject is None or matches(subject):
                del self._waiting[rung]
                if not rung.done():
                    rung.set_result(None)

    async def wait_some(
        self,
        take: Callable[[], Sequence[T]],
        *,
        wait_s: float,
        matches: Callable[[str], bool] = any_subject,
        next_due_s: Callable[[], float] = never_s,
        is_over: Callable[[], bool] = never,
    ) -> Sequence[T]:
        """Return what `take` finds, or nothing once `wait_s` has passed or it `is_over`.

        It is asked at once, after every ring for a subject that `matches`, and at the monotonic
        time `next_due_s()`.
        """
        end_s = self._clock.monotonic_s() + wait_s
        while True:
            found = take()
            now_s = self._clock.monotonic_s()
            if found or now_s >= end_s or is_over():
                return found
            most_s = max(0.0, min(end_s, next_due_s()) - now_s)
            await self._wait_ring(matches, most_s=most_s)

    async def _wait_ring(self, matches: Callable[[str], bool], *, most_s: float) -> None:
        rung = asyncio.get_running_loop().create_future()
        self._waiting[rung] = matches
        try:
            async with self._clock.timeout(most_s):
                await rung
        except TimeoutError:
            pass  # It is later now, which is what there was to wait for.
        finally:
            self._waiting.pop(rung, None)
