"""Threads of one node, for functions of users that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from types import TracebackType
from typing import Final, Self, TypeVar

R = TypeVar("R")

THREADS_MAX: Final = 64
"""Most threads of one node at a time. One whose caller has left counts until its function ends."""


class Threads:
    """Threads of one node; nothing waits for one that never ends."""

    def __init__(self, most: int = THREADS_MAX) -> None:
        self._free = asyncio.Semaphore(most)

    async def take(self) -> Thread:
        """Wait until there may be one thread more, and return it; use it as a context."""
        await self._free.acquire()  # guard: threads-max
        return Thread(self._free)


class Thread:
    """One thread, which runs one function."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let others have it, unless the function runs: then only at its end."""
        if not self._has_begun:  # guard: thread-counts-until-end
            self._free.release()

    async def run(self, function: Callable[[], R]) -> R:
        """Run `function` in the thread; return or raise what it does.

        If the caller leaves, the function goes on by itself and its result is ignored.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Callable[[], R]] = loop.create_future()
        context = copy_context()

        def finish(outcome: Callable[[], R]) -> None:
            self._free.release()
            if not ended.done():
                ended.set_result(outcome)

        def work() -> None:
            outcome = _outcome_of(lambda: context.run(function))
            with suppress(RuntimeError):  # The loop may be gone by now.
                loop.call_soon_threadsafe(finish, outcome)

        # A daemon: a function that hangs must not keep the program from ending.
        threading.Thread(target=work, daemon=True, name="vigil-tool").start()
        self._has_begun = True
        return (await ended)()


def _outcome_of(function: Callable[[], R]) -> Callable[[], R]:
    """Return a function that returns or raises what `function` did."""
    try:
        returned = function()
    # guard: thread-survives-any-raise
    except BaseException as error:  # noqa: BLE001 - raised where the thread is awaited
        raised = error

        def fail() -> R:
            raise raised

        return fail
    return lambda: returned
