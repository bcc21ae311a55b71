"""The tasks of one doer: started here, waited for when the node stops, cut off when it must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

Contain: TypeAlias = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
"""Wraps work so that what it raises by surprise harms nothing else."""


class Hands:
    """What a doer is at. The doer bounds how much that is."""

    def __init__(self, contain: Contain) -> None:
        """Begin idle; all work is run through `contain`."""
        self._contain = contain
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else."""
        task = asyncio.create_task(self._contain(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until nothing is left to do."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @asynccontextmanager
    async def cut_off_when_cancelled(self) -> AsyncIterator[None]:
        """End everything at once if the doer is cancelled: leases lapse, deliveries come again."""
        try:
            yield
        except asyncio.CancelledError:
            await self._cut_off()
            raise

    async def _cut_off(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
