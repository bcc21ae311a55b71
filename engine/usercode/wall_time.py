"""`WallTime`: the running time of an episode, and the end of its code when that is used up.

It limits the running time over all attempts, and cuts user code off when it is used up or the
episode is canceled. Time that is spent waiting for the log does not count, and a write that is on
its way to the journal is never cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from engine.errors import BudgetExceeded
from engine.usercode.cancel_scope import CancelScope
from streams.clock import Clock

T = TypeVar("T")

TIMER_S: Final = 0.001
"""How exact a timer is, in seconds: one that fires so much too early is not set anew."""


class WallTime:
    """The running time of one attempt, on top of what earlier ones used.

    The time does not count while the episode waits for the log, which it does at each step. The
    timer is not moved each time; it is set anew if it fires too early.
    """

    def __init__(self, clock: Clock, scope: CancelScope, *, limit_s: float, used_s: float) -> None:
        """Begin with `used_s`; `limit_s` is over all attempts, 0 or less is no limit.

        `scope` has the code that is cut off once the time is used up.
        """
        self._clock, self._scope, self._limit_s = clock, scope, limit_s
        self._used_s = used_s
        self._since_s: float | None = None
        """Since when it runs; None: it stands still."""
        self._is_counting = False
        self._waits = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_cut_off = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Have the time run within the context."""
        self._is_counting = True
        self._go_on()
        self._set_timer()
        try:
            yield
        finally:
            self._pause()
            self._is_counting = False
            if self._timer is not None:
                self._timer.cancel()

    def used_s(self) -> float:
        """Return the seconds of running so far, over all attempts."""
        if self._since_s is None:
            return self._used_s
        return self._used_s + self._clock.monotonic_s() - self._since_s

    def cut_off(self) -> None:
        """Cut off the code of the scope, now or right after the barrier."""
        self._is_cut_off = True
        if not self._waits and not self._scope.is_canceled:  # guard: barrier-not-cut-off
            self._scope.cancel()

    async def paused_while(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Return what `wait` does, which waits for the log, without using up time.

        Fails if user code ignored an earlier cut.

        Branches of a function may wait at the same time: time counts again after the last of them.
        """
        if self._scope.is_canceled:
            raise BudgetExceeded("wall_s", f"all {self._limit_s:g} used")
        self._waits += 1
        self._pause()
        try:
            return await wait()
        finally:
            self._waits -= 1
            if not self._waits:
                self._count_again()

    def _count_again(self) -> None:
        if self._is_counting:
            self._go_on()
        if self._is_cut_off:  # guard: cut-off-after-barrier
            self.cut_off()
        elif self._is_counting and self._timer is None:  # guard: time-counts-after-barrier
            self._set_timer()

    def _go_on(self) -> None:
        self._since_s = self._clock.monotonic_s()

    def _pause(self) -> None:
        self._used_s, self._since_s = self.used_s(), None  # guard: running-time-without-waits

    def _set_timer(self) -> None:
        if self._limit_s > 0:  # guard: wall-budget-cuts-step
            left_s = max(0.0, self._limit_s - self.used_s())
            self._timer = asyncio.get_running_loop().call_later(left_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waits:
            return
        if self._limit_s - self.used_s() > TIMER_S:  # guard: log-outage-uses-no-wall
            self._set_timer()
        else:
            self.cut_off()
