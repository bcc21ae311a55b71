"""The tasks of a node: started by its consumers, awaited when it stops, canceled in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from engine.usercode.leavable import CLEANUP_S, place_in
from streams.clock import Clock

CUT_OFF_S: Final = CLEANUP_S + 3.0
"""Longest wait for tasks that were cut off, in seconds: their code may clean up, and what they were
about to write is given up."""

log = structlog.get_logger("vigil.node")


class NodeTasks:
    """The tasks of a node. Its consumers bound their number."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else; what it raises unexpectedly harms nothing."""
        task = asyncio.create_task(_contained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # It may have been cut off before it began.

    async def finish(self) -> None:
        """Wait until all tasks are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cut_off(self) -> None:
        """End everything at once: leases lapse, deliveries come again."""
        tasks = list(self._tasks)
        for task in tasks:
            if not task.cancelling():  # Who is on the way out must not be disturbed.
                task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CUT_OFF_S)
            for task in late:
                log.warning("a task does not end: it is left", at=place_in(task.get_coro()))


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        raise
    except BaseException:
        log.exception("unexpected error in a task; its message comes again, its lease expires")


async def wait_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return once one of `waits` has ended, or raise what it raises; cancel the others."""
    waiting = [asyncio.ensure_future(each) for each in waits]
    try:
        ended, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in ended:
            each.result()
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def wait_set(event: asyncio.Event, *, within_s: float, clock: Clock) -> bool:
    """Return whether `event` is set, as soon as it is, or after `within_s`."""
    try:
        async with clock.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
