"""An event loop in simulated time, in which the same program runs the same way every time."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar

from vigil.testing.virtual_time import DAY_ONE, VirtualClock, VirtualSelector

T = TypeVar("T")

EPOCH: Final = DAY_ONE
"""When every world begins."""

TICK_S: Final = 1e-6
"""Shortest wait, in seconds. A loop calls at once what is due within a nanosecond: whoever waits
for less again and again, because of a rounding, would keep time from ever passing."""


class Stuck(Exception):
    """Every task waits for something that no other task will ever do."""


class _Nobody(selectors.SelectSelector):
    """Hears from no file: there is nothing outside."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
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
        self._virtual = VirtualSelector(_Nobody())
        self._numbers = itertools.count()
        super().__init__(self._virtual)
        self.set_task_factory(self._numbered)

    def _numbered(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> _Numbered:
        return _Numbered(coro, loop=loop, number=next(self._numbers), **options)

    def time(self) -> float:
        return self._virtual.now_s

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


class SimClock(VirtualClock):
    """The clock of the servers."""

    def __init__(self) -> None:
        super().__init__(EPOCH)
