"""One stream in memory, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from streams.errors import Unavailable, UnreadableEvent
from streams.memory.stream import MemoryStream
from streams.wire.messages import StreamMessage

T = TypeVar("T")


class MemoryFollower(Generic[T]):
    """See `streams.ports.log.Follower` and `streams.ports.domain_events.EventFollower`."""

    def __init__(
        self,
        stream: MemoryStream,
        decode: Callable[[StreamMessage], T],
        *,
        after: int,
        matches: Callable[[str], bool] | None = None,
    ) -> None:
        """Begin just past sequence `after`; `matches` says which subjects are ours; None: all."""
        self._stream = stream
        self._decode = decode
        self._position = after
        self._matches = matches

    @property
    def pending(self) -> int:
        """See `Follower.pending`."""
        if self._matches is None:
            return max(0, self._stream.last_seq - self._position)
        return sum(self._matches(each.subject) for each in self._stream.past(self._position))

    async def receive(self, *, most: int, wait_s: float) -> Sequence[T]:
        """See `Follower.receive`."""
        ends_at = self._stream.last_seq
        if ends_at < self._position:
            detail = f"it ends at {ends_at}, and was followed up to {self._position}"
            raise Unavailable(self._stream.name, detail=detail)
        return await self._stream.bell.wait_some(lambda: self._take(most), wait_s=wait_s)

    def _take(self, most: int) -> Sequence[T]:
        """Return the next messages; an unreadable one only once it is the next."""
        taken: list[T] = []
        self._position = max(self._position, self._stream.first_seq - 1)
        while len(taken) < most and self._position < self._stream.last_seq:
            message = self._stream.at(self._position + 1)
            if self._matches is None or self._matches(message.subject):
                try:
                    taken.append(self._decode(message))
                except UnreadableEvent:
                    if taken:
                        break
                    raise
            self._position += 1
        return taken
