"""Follows watches of a bucket, or of the leases: first what is there, then each change.

A watch that was cut off for over an hour misses what was removed meanwhile. Where that matters,
`look` asks for all that is there, now and then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Protocol, TypeVar

from engine.runtime.tasks import wait_first
from streams.clock import Clock

T = TypeVar("T")

T_co = TypeVar("T_co", covariant=True)

CHANGES_MAX: Final = 500
"""Changes of one `receive`."""

WAIT_S: Final = 5.0
"""Longest silent wait for changes; only how often an idle watcher wakes."""


Hear = Callable[[Sequence[T]], Awaitable[None]]
"""Takes changes in their order; none after a silence."""


class Watch(Protocol[T_co]):
    """A position among changes that moves forward."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[T_co]:
        """Return the next changes in order: up to `most`, none after `wait_s` of silence."""


def _never() -> bool:
    return False


async def follow(
    opening: AbstractAsyncContextManager[Watch[T]],
    hear: Hear[T],
    *,
    until: Callable[[], bool] = _never,
) -> None:
    """Call `hear` with each change, until `until` is true after one call.

    After `Unavailable`, which `hear` may raise, following anew begins with all that is there.
    """
    async with opening as watch:
        await _hear_all(watch, hear, until)


async def follow_and_look(
    openings: Sequence[AbstractAsyncContextManager[Watch[T]]],
    hear: Hear[T],
    look: Callable[[], Awaitable[None]],
    *,
    look_every_s: float,
    clock: Clock,
) -> None:
    """Call `look` once the watches are open; then `hear` with each change, and `look` again.

    Calls may overlap, but for the first `look`.
    """
    async with AsyncExitStack() as stack:
        watches = [await stack.enter_async_context(each) for each in openings]
        await look()
        hearing = [_hear_all(each, hear, _never) for each in watches]
        await wait_first(*hearing, _look_for_ever(look, look_every_s, clock))


async def _hear_all(watch: Watch[T], hear: Hear[T], until: Callable[[], bool]) -> None:
    while not until():
        await hear(await watch.receive(most=CHANGES_MAX, wait_s=WAIT_S))


async def _look_for_ever(
    look: Callable[[], Awaitable[None]], look_every_s: float, clock: Clock
) -> None:
    while True:
        await clock.sleep(look_every_s)
        await look()
