"""Says which line of whose code blocks the event loop, while it does, and ends the node in the end.

A task of the loop notes the time again and again. A thread sees when that was long ago, and looks
at the stack of the loop's thread: a tool, strategy or library of the user waits without `await`. A
node whose loop stands still for twice as long as its leases last has lost all of them; it ends, so
that whoever keeps it going starts it again.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

from engine.usercode.leavable import NOT_THE_USERS
from streams.clock import SystemClock
from vigil.errors import EXIT_UNCLEAN

BLOCKED_S: Final = 1.0
"""How long the loop may stand still before it is told, in seconds."""

BLOCKED: Final = (
    "the event loop is blocked: code waits without `await`; use async, or a function with @tool"
    " that is not async"
)

STOOD_STILL: Final = "the event loop does not run any more: the node ends, others have its work"

LOOKS: Final = 4
"""Looks within that time."""

_LOOP: Final = (str(Path(asyncio.__file__).parent), selectors.__file__)
"""The files of the event loop itself."""

log = structlog.get_logger("vigil.node")


def end_process() -> None:
    """End this process, whose event loop does not run."""
    os._exit(EXIT_UNCLEAN)


@asynccontextmanager
async def watched_loop(
    *,
    blocked_s: float = BLOCKED_S,
    ends_after_s: float | None = None,
    end: Callable[[], None] = end_process,
) -> AsyncIterator[None]:
    """Watch the running loop meanwhile; each block of over `blocked_s` is logged once.

    `end` is called, in a thread, after a block of `ends_after_s`; None: never.
    """
    looks_max = math.inf if ends_after_s is None else LOOKS * ends_after_s / blocked_s
    watch = _Watch(blocked_s, looks_max, end)
    running = asyncio.create_task(watch.note_running())
    thread = threading.Thread(target=watch.look, name="loop watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.ended.set()
        running.cancel()


class _Watch:
    def __init__(self, blocked_s: float, looks_max: float, end: Callable[[], None]) -> None:
        self._blocked_s, self._every_s = blocked_s, blocked_s / LOOKS
        self._looks_max, self._end = looks_max, end
        self._clock = SystemClock()
        self._loop_thread = threading.get_ident()
        self._ran_s = self._clock.monotonic_s()
        self.ended = threading.Event()

    async def note_running(self) -> None:
        while True:
            self._ran_s = self._clock.monotonic_s()
            await self._clock.sleep(self._every_s)

    def look(self) -> None:
        """Look until the end; in a thread of its own."""
        # A signal interrupts one of the threads that do not block it, and must interrupt the loop.
        # guard: signal-wakes-loop-thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        told_of = seen_s = 0.0
        # Looks, not seconds: a process that was stopped as a whole has not stood still.
        stood = 0
        while not self.ended.wait(self._every_s):
            ran_s = self._ran_s
            seen_s, stood = ran_s, stood + 1 if ran_s == seen_s else 0
            if stood >= self._looks_max:  # guard: stalled-loop-ends-node
                self._give_up()
            # guard: running-loop-not-blocked
            if ran_s == told_of or self._clock.monotonic_s() - ran_s < self._blocked_s:
                continue
            told_of = ran_s
            if place := place_of(sys._current_frames().get(self._loop_thread)):  # noqa: SLF001 - no other way
                log.warning(BLOCKED, at=place, over_s=self._blocked_s)

    def _give_up(self) -> None:
        place = place_of(sys._current_frames().get(self._loop_thread))  # noqa: SLF001 - no other way
        log.error(STOOD_STILL, at=place, over_s=self._looks_max * self._every_s)
        self.ended.set()
        self._end()


def place_of(innermost: FrameType | None) -> str:
    """Return the user's innermost line that the loop runs; without any, the innermost of all.

    Nothing if it runs none: then the whole process has stood still.
    """
    frames = []
    while innermost is not None and not innermost.f_code.co_filename.startswith(_LOOP):
        frames.append(innermost)
        innermost = innermost.f_back
    users = [each for each in frames if not each.f_code.co_filename.startswith(NOT_THE_USERS)]
    for found in (*users, *frames):
        code = found.f_code
        return f"{Path(code.co_filename).name}:{found.f_lineno}, in {code.co_qualname}"
    return ""
