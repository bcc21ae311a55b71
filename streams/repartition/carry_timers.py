"""Carries timers, pending and due, into the streams of another layout.

They cannot be copied as other messages are: the server lets them fire, in the old streams and in
the new ones, whether anybody uses the stack or not. But what fires keeps its id. So those that are
pending are carried first and those that are due after them, each id once: what fires in between is
met again as due, and known. In the end both sides have the same ids, whatever has fired where.

The new streams have to be new, and nobody else at it: a timer that is carried twice may have
fired in between. Whoever is cut off begins anew.
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
"""What a header begins with that was meant for a server, or set by one."""


@dataclass(frozen=True, kw_only=True)
class TimerCopy:
    """The timers of a stack, from one layout to another."""

    link: Link
    old: Stack
    new: Stack
    check: Callable[[], Awaitable[None]]
    """Raises if somebody else may be at it by now."""

    async def carry(self, tell: Callable[[int], None]) -> None:
        """Carry every timer and look whether all are there. `tell` hears how many are carried.

        Raises:
            Incompatible: other timers are there than were carried.
            BadName: something is where no timer can be.
        """
        ids: set[str] = set()
        groups, waiting = Groups(self.link), list[Write]()
        async with aclosing(self._timers(self.old)) as timers:
            async for id_, found in timers:
                if id_ not in ids:
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
        """Yield all that are pending, then all that are due, each with its id.

        One that fires meanwhile comes twice. Only the leader is asked: no other replica knows
        for sure what has just been written, or fired.
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
