"""`gather_bounded`: the same work for many items, some of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(
    work: Callable[[T], Awaitable[R]], items: Iterable[T], *, in_flight_max: int
) -> list[R]:
    """Return what `work` makes of each of `items`, in their order.

    The first error ends the rest: what is under way is canceled and has ended, and the error is
    raised as it is.
    """
    room = asyncio.Semaphore(in_flight_max)

    async def one(item: T) -> R:
        async with room:  # guard: gather-at-a-time
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        if not all(task.done() for task in tasks):
            for task in tasks:
                task.cancel()  # guard: gather-first-error-ends
            await asyncio.gather(*tasks, return_exceptions=True)
