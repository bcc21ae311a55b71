"""Virtual time: it costs nothing, because it jumps to the next deadline once every task waits.

It is the time of the event loop, so whatever waits in that loop (sleeps, timeouts, waits with a
limit) waits in virtual time. `VirtualSelector` is the part of a loop that makes it jump;
`virtual_time` gives one to the loop that runs, for as long as a context lasts. What happens outside
the loop, in threads, takes the time that it takes, and time stands still meanwhile.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeAlias

from streams.clock import SystemClock

TURN_S: Final = 1e-9
"""What every turn of a loop takes, in seconds. A loop calls at once what is due within a
nanosecond: whoever waits for less again and again would keep time from ever passing."""

THREAD_LOOK_S: Final = 0.05
"""Longest real wait for a thread before time may jump after all, in seconds, if it has ended."""

TOOL_THREADS: Final = "vigil-tool"
"""What the threads of tools are called."""


class HasFileno(Protocol):
    """A file, as selectors take it."""

    def fileno(self) -> int:
        """Return its number."""


File: TypeAlias = int | HasFileno


class VirtualSelector(selectors.BaseSelector):
    """Waits for nothing: what it is asked to wait, it adds to the time."""

    def __init__(
        self,
        real: selectors.BaseSelector,
        *,
        now_s: float = 0.0,
        turn_s: float = 0.0,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin at `now_s`; `real` looks at files, and waits while `is_busy` or nothing is due."""
        self.now_s = now_s
        self._real, self._turn_s, self._is_busy = real, turn_s, is_busy
        self._settling: list[asyncio.Future[None]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; else wake who waits for all to settle; else let time jump."""
        self.now_s += self._turn_s
        if ready := self._real.select(0):
            return ready
        if timeout is not None and timeout <= 0:
            return []
        if self._is_busy():  # guard: thread-stops-virtual-time
            return self._real.select(THREAD_LOOK_S)
        if self._settling:
            self._settle()
            return []
        if timeout is None:
            return self._real.select(None)
        self.now_s += timeout
        return []

    async def wait_settled(self) -> None:
        """Wait until every other task waits, for time to pass or for somebody outside."""
        settled = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        await settled

    def _settle(self) -> None:
        """Wake one who waits. What that one does may take some turns until all is calm again."""
        settled = self._settling.pop(0)
        if not settled.done():
            settled.set_result(None)

    def register(self, fileobj: File, events: int, data: object = None) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: File) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        return self._real.unregister(fileobj)

    def modify(self, fileobj: File, events: int, data: object = None) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[File, selectors.SelectorKey]:
        """See `selectors.BaseSelector`."""
        return self._real.get_map()

    def close(self) -> None:
        """See `selectors.BaseSelector`."""
        self._real.close()


class VirtualClock(SystemClock):
    """The wall clock and the monotonic clock of a loop in virtual time.

    The wall clock can `leap`, as that of a machine does that was suspended: leases, heartbeats and
    waits for messages do not notice.
    """

    def __init__(self, start: datetime, *, since_s: float = 0.0) -> None:
        """Show `start` when the loop's time is `since_s`."""
        self._start, self._since_s = start, since_s

    def now(self) -> datetime:
        """Return the wall time."""
        return self._start + timedelta(seconds=self.monotonic_s() - self._since_s)

    def monotonic_s(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    def leap(self, seconds: float) -> None:
        """Put the wall clock forward."""
        self._start += timedelta(seconds=seconds)


@contextmanager
def virtual_time() -> Iterator[VirtualSelector]:
    """Let the running loop's time be virtual, from what it is now, while the context lasts.

    Raises `RuntimeError` if the loop is not one of asyncio's own, or has virtual time already.
    """
    from anyio.to_thread import current_default_thread_limiter

    loop = asyncio.get_running_loop()
    real: selectors.BaseSelector | None = getattr(loop, "_selector", None)
    if real is None or not hasattr(real, "select"):
        raise RuntimeError(
            f"{type(loop).__name__} has no virtual time; run tests on asyncio's own event loop"
        )
    if isinstance(real, VirtualSelector):
        raise RuntimeError(  # noqa: TRY004 - it is about the time, and not about a type
            "this loop's time is virtual already; use one run(…) at a time"
        )
    executions, borrowed = _Executions(loop), current_default_thread_limiter()

    def is_busy() -> bool:
        # guard: library-thread-stops-virtual-time
        return executions.count > 0 or borrowed.borrowed_tokens > 0 or _has_tool()

    selector = VirtualSelector(real, now_s=loop.time(), turn_s=TURN_S, is_busy=is_busy)
    before = {name: vars(loop).get(name) for name in ("time", "run_in_executor")}
    # An event loop asks these two, and nothing else, what time it is and what is ready.
    vars(loop).update(
        _selector=selector, time=lambda: selector.now_s, run_in_executor=executions.run
    )
    try:
        yield selector
    finally:
        vars(loop).update(_selector=real)
        for name, value in before.items():
            vars(loop).pop(name) if value is None else vars(loop).update({name: value})


class _Executions:
    """Counts what executors do for a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._run = loop.run_in_executor
        self.count = 0

    def run(
        self, executor: Executor | None, function: Callable[..., object], *args: object
    ) -> asyncio.Future[object]:
        self.count += 1
        future: asyncio.Future[object] = self._run(executor, function, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        self.count -= 1


def _has_tool() -> bool:
    return any(thread.name == TOOL_THREADS for thread in threading.enumerate())


DAY_ONE: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When the virtual time of a test begins unless it says otherwise."""
