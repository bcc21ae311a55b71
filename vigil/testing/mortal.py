"""The ports of a node that may die, at any moment before or after a commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import TypeAlias

from streams.layout import Kind, Stream
from streams.ports.all import Ports
from streams.ports.log import START, Commit, EventLog, Follower, Recorded

Moment: TypeAlias = Callable[[str], Awaitable[None]]
"""Called with what is about to happen or has happened, for people; never returns to the dead."""


@dataclass(frozen=True)
class MortalLog:
    """See `EventLog`; each append has a moment before and one after it."""

    log: EventLog
    moment: Moment

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        """See `EventLog.append`."""
        what = f"{', '.join(type(each).__name__ for each in commit.events)} on {subject}"
        await self.moment(f"before {what}")
        seq = await self.log.append(subject, commit, after=after)
        await self.moment(f"after {what}")
        return seq

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        """See `EventLog.read`."""
        return await self.log.read(subject, after=after)

    async def last(self, subject: str) -> Recorded | None:
        """See `EventLog.last`."""
        return await self.log.last(subject)

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        """See `EventLog.newest`."""
        return await self.log.newest(subjects)

    async def subjects(self, kind: Kind) -> Sequence[str]:
        """See `EventLog.subjects`."""
        return await self.log.subjects(kind)

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        """See `EventLog.at`."""
        return await self.log.at(seq, stream, partition=partition)

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        """See `EventLog.head`."""
        return await self.log.head(stream, partition=partition)

    async def opened(self, records: Sequence[Recorded]) -> Sequence[Recorded]:
        """See `EventLog.opened`."""
        return await self.log.opened(records)

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `EventLog.first_seq`."""
        return await self.log.first_seq(stream, partition=partition)

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `EventLog.page`."""
        return await self.log.page(stream, after=after, up_to=up_to, most=most, partition=partition)

    def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AbstractAsyncContextManager[Follower]:
        """See `EventLog.follow`."""
        return self.log.follow(stream, after=after, partition=partition)


def mortal(ports: Ports, moment: Moment) -> Ports:
    """Return `ports` for one node."""
    kept = {field.name: getattr(ports, field.name) for field in fields(Ports)}
    return Ports(**{**kept, "log": MortalLog(ports.log, moment)})
