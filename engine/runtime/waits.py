"""Waiting for whichever of several things happens first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from streams.clock import Clock


async def wait_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return once one of `waits` has ended, or raise what it raises; the others are called off."""
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
