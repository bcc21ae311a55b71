"""Events of one stream in memory, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.errors import Unavailable
from streams.memory.stream import MemoryStream
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import DomainEvent, Followed
from streams.wire.messages import TimedMessage, followed


class MemoryEventFollower:
    """See `streams.ports.domain_events.EventFollower`."""

    def __init__(
        self,
        stream: MemoryStream,
        *,
        after: int,
        matches: Callable[[str], bool],
        parse: Callable[[TimedMessage], DomainEvent | Unreadable],
    ) -> None:
        self._stream = stream
        self._position = after
        self._matches = matches
        self._parse = parse

    @property
    def pending(self) -> int:
        """See `EventFollower.pending`."""
        return sum(self._matches(each.subject) for each in self._stream.past(self._position))

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Followed]:
        """See `EventFollower.receive`."""
        ends_at = self._stream.last_seq
        if ends_at < self._position:
            detail = f"it ends at {ends_at}, and was followed up to {self._position}"
            raise Unavailable(self._stream.name, detail=detail)
        return await self._stream.bell.wait_some(lambda: self._take(most), wait_s=wait_s)

    def _take(self, most: int) -> Sequence[Followed]:
        taken: list[Followed] = []
        while len(taken) < most and self._position < self._stream.last_seq:
            self._position += 1
            message = self._stream.at(self._position)
            if self._matches(message.subject):
                taken.append(followed(self._parse, message))
        return taken
