"""`CancelScope`: code of users in a task of its own, so that it can be ended whatever it catches.

    run ──▶ ended by itself      its result, or what it raised
        ──▶ canceled ──▶ cleaned up within `CLEANUP_S`          `Canceled`
                     ──▶ left: it goes on nowhere, with a line that names it

What cancels it is the engine: the wall time is used up, the episode is canceled, the claim is lost,
the node stops. Code of users may cancel its own task, too, as `asyncio.timeout` does; that is none
of this scope's business, and `is_canceled` tells one from the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from engine.errors import CRASH, EpisodeFailed
from engine.usercode.leavable import CLEANUP_S, LEFT, close, leavable, place_in
from streams.clock import Clock

T = TypeVar("T")

log = structlog.get_logger("vigil.usercode")


class Canceled(Exception):
    """The scope was canceled, and its code has ended or was left."""


class CancelScope:
    """Runs one coroutine, once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_canceled = False
        """Whether `cancel` was called, or whoever waits was canceled."""
        self.is_left = False
        """Whether nothing within goes on any more, at its next `await`."""
        self._task: asyncio.Task[Any] | None = None
        self._over: asyncio.Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, T], *, name: str) -> T:
        """Return or raise what `work` does; `Canceled`: it was canceled.

        `EpisodeFailed` of class `crash` if it has canceled its own task. `name` is that of the
        task, for people who look at what a node does.
        """
        self._over = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._within(work), name=name)
        self._task = task
        task.add_done_callback(self._end)
        task.add_done_callback(lambda _: close(work))  # It may not have begun.
        if self.is_canceled:
            task.cancel()
        try:
            await self._over
        except asyncio.CancelledError:
            self.cancel()
            await self._clean_up(task, work)
            raise
        if self.is_canceled:
            await self._clean_up(task, work)
            raise Canceled
        if task.cancelled():  # guard: self-cancel-spares-episode
            raise EpisodeFailed(CRASH, "the code canceled its own task")
        return task.result()

    def cancel(self) -> None:
        """End the code within, at once; it may clean up."""
        self.is_canceled = True
        if self._task is not None:
            self._task.cancel()
            self._wake()

    async def _within(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await leavable(work, self)
        finally:
            self._wake()  # Now, and not by a callback of the task: that takes a turn of the loop.

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        if self.is_canceled and not task.cancelled():
            task.exception()  # Nobody asks for it; asyncio would warn.
        self._wake()

    def _wake(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def _clean_up(self, task: asyncio.Task[Any], work: Coroutine[Any, Any, Any]) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(CLEANUP_S):
                await asyncio.wait({task})
        if task.done():
            return
        log.warning(LEFT, task=task.get_name(), at=place_in(work), after_s=CLEANUP_S)
        self.is_left = True  # guard: endless-user-code-left
        task.cancel()
