"""Time that costs nothing: it jumps to the next deadline once every task is asleep.

It is the loop's own time, so whatever waits in it (sleeps, timeouts, waits with a limit)
waits in simulated time, and the same program runs the same way every time.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

T = TypeVar("T")

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When every world begins."""

TICK_S: Final = 1e-6
"""Shortest wait, in seconds. A loop calls at once what is due within a nanosecond: whoever waits
for less again and again, because of a rounding, would keep time from ever passing."""


class Stuck(Exception):
    """Every task waits for something that no other task will ever do."""


class _Jump(selectors.SelectSelector):
    """Waits for nothing: what it is asked to wait, it adds to the time."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self.now_s += max(0.0, timeout)
        return []


class _Numbered(asyncio.Task[Any]):
    """A task that stands in sets where its number puts it, and not where it lies in memory.

    Groups of tasks are sets, so in the order of a set they are canceled.
    """

    def __init__(self, *args: Any, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time, which begins at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        self._numbers = itertools.count()
        super().__init__(self._jump)
        self.set_task_factory(self._numbered)

    def _numbered(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> _Numbered:
        return _Numbered(coro, loop=loop, number=next(self._numbers), **options)

    def time(self) -> float:
        return self._jump.now_s

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(max(when, self.time() + TICK_S), callback, *args, context=context)


def simulate(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, at once, however long it waits."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(work)


class SimClock:
    """The clock of the servers."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic_s())

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)
