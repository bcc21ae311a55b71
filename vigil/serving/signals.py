"""Running a program's coroutine for long, and ending it on a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from vigil.errors import EXIT_SIGNAL
from vigil.serving.exit import end_within

T = TypeVar("T")

COLLECT_EVERY: Final = 20_000
"""New objects between two collections of garbage. Python's own 700 are those of one or two
episodes, and nearly all of them are still in use: with 256 in flight, looking through them took
18 % of a node's processor time for five strict steps, and 33 % for ten findings
(`docs/performance.md`)."""

AT_ONCE: Final = (
    b"vigil: ends now; what ran is left as after a crash, and goes on once its lease has ended\n"
)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_program(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with collecting_seldom(), asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for garbage in cycles every `COLLECT_EVERY` objects, unless the app does so less often.

    All other garbage goes at once, as ever.
    """
    before = gc.get_threshold()
    if 0 < before[0] < COLLECT_EVERY:  # guard: no-collector-left-alone
        gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def stopping(
    stop: Callable[[], None],
    *,
    abandon: Callable[[], None] | None = None,
    within_s: float | None = None,
) -> Iterator[None]:
    """Call `stop` on the first SIGINT or SIGTERM; on the second call `abandon`, and end at once.

    The interpreter handles them, not the loop: the second is heard even while code blocks the loop.

    Args:
        within_s: how long the program may take to end after the first, in seconds; then `abandon`
            is called, and it ends by force. None: as long as it takes.
    """
    loop = asyncio.get_running_loop()
    is_stopping = False

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals call it
        nonlocal is_stopping
        if is_stopping:
            try:
                if abandon is not None:
                    abandon()
                # Nobody may be there to read it, and a handler may not use what buffers.
                with suppress(OSError, ValueError, AttributeError):
                    os.write(sys.stderr.fileno(), AT_ONCE)
            finally:
                os._exit(EXIT_SIGNAL + number)  # guard: second-signal-ends-whatever-fails
        is_stopping = True
        loop.call_soon_threadsafe(stop)
        if within_s is not None:  # guard: told-to-stop-ends
            end_within(within_s, loop=loop, first=abandon)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def unwind_on_sigterm() -> None:
    """Let SIGTERM end this program as Ctrl-C does, so that what it started is stopped."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as signals call it
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


async def wait_stop(stop: asyncio.Event, *, timeout_s: float) -> None:
    """Wait until `stop` is set, for at most `timeout_s`: the pause of a loop that looks again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await stop.wait()
