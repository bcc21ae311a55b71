"""Opens a shared queue for as long as the node may take work from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from streams.ports.delivery import Source

T = TypeVar("T")


@asynccontextmanager
async def taking(
    opening: Awaitable[Source[T]], *, stopping: asyncio.Event
) -> AsyncIterator[Source[T]]:
    """Yield the source that `opening` opens; it is closed at the end, or once `stopping` is set.

    A `receive` that waits then returns at once, so that nobody who is to stop need outwait it, and
    what was pulled and not received goes to others.
    """
    source = await opening
    closing = asyncio.create_task(_close_when(stopping, source))
    try:
        yield source
    finally:
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await source.close()


async def _close_when(stopping: asyncio.Event, source: Source[Any]) -> None:
    await stopping.wait()
    await source.close()
