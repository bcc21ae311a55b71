"""Pulls from several queues as if they were one: the partitions of a stack's work.

Each idle queue is asked for one message, and those with more waiting share the remaining room. All
that was asked for counts as taken, so the queues never deliver more than the `receive` had room
for. A request stays open between two receives, for `LOOK_S` where something waited and `ASK_S`
where nothing did, or until `pause`. So the room reserved for quiet queues is not available to a
busy one; with less room than queues they are asked in turn. Both are why a node should have room
for twice as many episodes as there are partitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from streams.clock import Clock
from streams.jetstream.connection.link import Link
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.ports.consumer import DurableConsumer
from streams.jetstream.ports.source import JetStreamSource
from streams.layout import Stream
from streams.ports.delivery import Delivery, Source
from streams.subjects import Stack

T = TypeVar("T")

ASK_S: Final = 1.0
"""How long a quiet queue is asked when every queue can be, in seconds."""

LOOK_S: Final = 0.05
"""How long a queue is asked that has something, or while others wait for their turn."""


class MergedSource(Generic[T]):
    """`Source` of what waits in any of several `sources`, which are its alone."""

    def __init__(self, sources: Sequence[Source[T]], clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._quiet = deque(sources)
        """Those that are not being asked; the one that waited longest is first."""
        self._asked: dict[asyncio.Task[Sequence[Delivery[T]]], tuple[Source[T], int]] = {}
        self._ready: deque[Delivery[T]] = deque()
        self._is_paused = False
        self._is_closed = False

    @property
    def pending(self) -> int:
        """See `Source.pending`."""
        return sum(source.pending for source in self._sources)

    async def receive(self, *, room: int, wait_s: float) -> Sequence[Delivery[T]]:
        """See `Source.receive`."""
        self._is_paused = self._is_closed
        until_s = self._clock.monotonic_s() + max(wait_s, LOOK_S)
        while not self._ready and not self._is_closed:
            self._ask(room)
            left_s = max(0.0, until_s - self._clock.monotonic_s())
            await asyncio.wait(self._asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            self._gather()
            if not left_s:
                break
        return [self._ready.popleft() for _ in range(min(room, len(self._ready)))]

    async def pause(self) -> None:
        """See `Source.pause`. Raises what a queue raised that was asked."""
        self._is_paused = True
        for task in self._asked:
            task.cancel()
        if self._asked:
            await asyncio.wait(self._asked)
        # guard: pause-of-every-partition
        await asyncio.gather(*(source.pause() for source in self._sources))
        self._gather()
        while self._ready:
            await self._ready.popleft().nak()

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """See `Source.hand_back`. There is no order between queues."""
        await self.pause()
        handing = (source.hand_back(is_whole=is_whole) for source in self._sources)
        return all(await asyncio.gather(*handing))

    async def close(self) -> None:
        """See `Source.close`."""
        self._is_paused = self._is_closed = True
        await asyncio.gather(*(source.close() for source in self._sources))
        await self.pause()

    def _ask(self, room: int) -> None:
        """Ask the queues that are quiet, as far as there is room."""
        # guard: merged-queues-keep-room
        free = room - len(self._ready) - sum(most for _, most in self._asked.values())
        turns = [self._quiet.popleft() for _ in range(min(free, len(self._quiet)))]
        idle_s = LOOK_S if self._quiet else ASK_S
        left = free - len(turns)
        busy = sum(source.pending > 0 for source in turns)
        for source in turns:
            if source.pending > 0:
                more = -(-left // busy)
                busy, left = busy - 1, left - more
                self._ask_one(source, most=1 + more, wait_s=LOOK_S)
            else:
                self._ask_one(source, most=1, wait_s=idle_s)

    def _ask_one(self, source: Source[T], *, most: int, wait_s: float) -> None:
        task = asyncio.create_task(source.receive(room=most, wait_s=wait_s))
        self._asked[task] = source, most

    def _gather(self) -> None:
        """Take what the queues have brought; those that are done may be asked again."""
        for task in [task for task in self._asked if task.done()]:
            source, most = self._asked.pop(task)
            self._quiet.append(source)
            found = () if task.cancelled() else task.result()
            self._ready.extend(found)
            if 0 < len(found) < most and not self._is_paused:
                # The rest of what it was asked for may still come, so it stays asked for.
                self._ask_one(self._quiet.pop(), most=most - len(found), wait_s=LOOK_S)


def work_consumers(
    stack: Stack, name: str, filter_of: Callable[[int], str]
) -> list[DurableConsumer]:
    """Return the consumer called `name` in each partition of the work."""
    return [
        DurableConsumer(
            stream=stack.stream(Stream.WORK, each), name=name, filters=(filter_of(each),)
        )
        for each in stack.partitions_of(Stream.WORK)
    ]


async def open_work(
    link: Link, consumers: Sequence[DurableConsumer], parse: Callable[[Arrival], T]
) -> Source[T]:
    """Return one source of what `consumers` deliver, which are made when missing."""
    for consumer in consumers:
        await consumer.ensure(link)
    sources = [JetStreamSource(link, each, parse) for each in consumers]
    return sources[0] if len(sources) == 1 else MergedSource(sources, link.clock)
