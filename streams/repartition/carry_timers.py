"""Moves timers, pending and due, into the streams of another layout.

They cannot be copied like other messages: the server fires them in the old and the new streams. But
a fired timer keeps its id. So pending ones are moved first and due ones after them, each id once:
one that fires in between is met again as due, and known. In the end both sides have the same ids.
The new streams must be new and nobody else may write to them: a timer that is moved twice may have
fired in between. After an interruption it starts again with new streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from streams.errors import Incompatible
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.messages.grouping import Groups, store_surely
from streams.jetstream.messages.publish import Write
from streams.jetstream.messages.stored import Stored
from streams.layout import Stream
from streams.subjects import Stack
from streams.wire.timers import TIMER_ID_HEADER, timer_headers

TOGETHER_MAX: Final = 64
"""Timers that are written at a time: at most 48 MiB of them (`TIMER_BYTES_MAX`)."""

_SERVERS: Final = "Nats-"
"""Prefix of headers for or from a server."""


@dataclass(frozen=True, kw_only=True)
class TimerCopy:
    """The timers of a stack, from one layout to another."""

    link: Link
    old: Stack
    new: Stack
    check: Callable[[], Awaitable[None]]
    """Raises if somebody else may be changing the layout."""

    async def carry(self, tell: Callable[[int], None]) -> None:
        """Move every timer and check that all are there; `tell` gets the count."""
        ids: set[str] = set()
        groups, waiting = Groups(self.link), list[Write]()
        async with aclosing(self._timers(self.old)) as timers:
            async for id_, found in timers:
                if id_ not in ids:  # guard: carried-timer-once
                    ids.add(id_)
                    waiting.append(self._copy_of(id_, found))
                if len(waiting) == TOGETHER_MAX:
                    await self._store(groups, waiting)
                    tell(len(ids))
        await self._store(groups, waiting)
        await self._verify(ids)
        tell(len(ids))

    async def _verify(self, ids: set[str]) -> None:
        async with aclosing(self._timers(self.new)) as timers:
            there = {id_ async for id_, _ in timers}
        if there != ids:
            raise Incompatible(
                f"stack {self.new.name} has {len(there)} timers where {len(ids)} were carried",
                remedy="Go back to the layout before with `vigil repartition`, and begin again.",
            )

    async def _store(self, groups: Groups, waiting: list[Write]) -> None:
        await self.check()
        stream_of = self.new.stream_of
        await asyncio.gather(
            *(store_surely(self.link, groups.to(stream_of(w.subject)), w) for w in waiting)
        )
        waiting.clear()

    async def _timers(self, stack: Stack) -> AsyncGenerator[tuple[str, Stored], None]:
        """Yield all pending, then all due timers, each with its id; one that fires comes twice.

        Only the leader is asked: replicas may lag.
        """
        for every in (stack.every_timer, stack.every_due):
            for partition in stack.partitions_of(Stream.WORK):
                name = stack.stream(Stream.WORK, partition)
                found = stored.one_by_one(self.link, name, every(partition))
                async with aclosing(found):
                    async for each in found:
                        yield _id(name, each), each

    def _copy_of(self, id_: str, found: Stored) -> Write:
        kept = {name: said for name, said in found.headers.items() if not name.startswith(_SERVERS)}
        said = {**kept, **timer_headers(id=id_)}
        timer = self.old.timer_of(found.subject)
        if timer is None:
            # Whoever answers for due timers takes them from every partition.
            partition = found.seq % self.new.partitions
            subject = self.new.due(self.old.actor_of_due(found.subject), partition)
        else:
            subject = self.new.timer(*timer)
            said |= self._schedule_of(found, timer)
        return Write(subject, bytes(found.data), said, key=id_)

    def _schedule_of(self, found: Stored, timer: tuple[str, str, str]) -> Headers:
        if headers.SCHEDULE not in found.headers:
            return {}
        target = self.new.due(timer[0], self.new.timer_partition(*timer))
        said = found.headers[headers.SCHEDULE]
        return {headers.SCHEDULE: said, headers.SCHEDULE_TARGET: target}


def _id(stream: str, found: Stored) -> str:
    return found.headers.get(TIMER_ID_HEADER) or f"{stream}:{found.seq}"
