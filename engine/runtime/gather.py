"""Several things at a time: the first error ends the rest, which has ended when it is raised.

`gather_bounded` does the same work for many items, `together` a few different things.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")
R = TypeVar("R")

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


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

    return await _all_of([asyncio.create_task(one(item)) for item in items])


@overload
async def together(first: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...


@overload
async def together(
    first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /
) -> tuple[A, B, C]: ...


@overload
async def together(
    first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], fourth: Awaitable[D], /
) -> tuple[A, B, C, D]: ...


async def together(*works: Awaitable[Any]) -> tuple[Any, ...]:
    """Return what two to four things bring that are awaited at the same time.

    The first error ends the rest, as in `gather_bounded`.
    """
    return tuple(await _all_of([asyncio.ensure_future(work) for work in works]))


async def _all_of(tasks: Sequence[asyncio.Future[R]]) -> list[R]:
    try:
        return await asyncio.gather(*tasks)
    finally:
        if not all(task.done() for task in tasks):
            for task in tasks:
                task.cancel()  # guard: gather-first-error-ends
            await asyncio.gather(*tasks, return_exceptions=True)
