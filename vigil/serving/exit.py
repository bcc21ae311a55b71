"""Ends a program that was told to stop and does not, and says who holds it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import structlog

from engine.usercode.leavable import place_in
from vigil.errors import EXIT_UNCLEAN
from vigil.serving.loop_watch import place_of

EXIT_S: Final = 10.0
"""How long a node may take to end once its grace is over, in seconds: code that was canceled cleans
up for 5, then servers are told that it leaves, and connections are closed."""

HOLDERS_MAX: Final = 5
"""Most holders that a line names."""

TRIES_MAX: Final = 5
"""Most looks at the tasks of a loop that goes on meanwhile."""

log = structlog.get_logger("vigil.node")


def end_within(
    seconds: float,
    *,
    loop: asyncio.AbstractEventLoop,
    first: Callable[[], None] | None = None,
    code: int = EXIT_UNCLEAN,
) -> None:
    """End the process after `seconds` with exit code `code`, unless it has ended by then.

    A line names who holds it: code that blocks the loop, tasks that catch what is to end them, and
    threads that are no daemons. Then `first` is called, which stops what must not stay behind.
    """
    loop_thread = threading.get_ident()

    def end() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Event().wait(seconds)
        holders = list(_holders(loop, loop_thread))[:HOLDERS_MAX]
        log.error("stopped by force: it did not end in time", after_s=seconds, held_by=holders)
        if first is not None:
            first()
        os._exit(code)

    threading.Thread(target=end, name="end within", daemon=True).start()


def _holders(loop: asyncio.AbstractEventLoop, loop_thread: int) -> Iterator[str]:
    frames = sys._current_frames()  # noqa: SLF001 - no other way
    if place := place_of(frames.get(loop_thread)):
        yield place
    for task in _tasks(loop):
        if place := place_in(task.get_coro(), but_installed=True):  # Tasks of NATS wait, too.
            yield f"{place}, in {task.get_name()}"
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            yield f"{place_of(frames.get(thread.ident or 0))}, in thread {thread.name}"


def _tasks(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[object]]:
    for _ in range(TRIES_MAX):
        with suppress(RuntimeError):  # The loop has begun or ended one meanwhile.
            return asyncio.all_tasks(loop)
    return set()
