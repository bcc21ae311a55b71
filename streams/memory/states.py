"""How the streams in memory are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from streams.clock import Clock
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.memory.following import MemoryFollower
from streams.memory.stream import MemoryStream
from streams.model.losses import StreamState
from streams.ports.states import RawMessage, RawReader
from streams.subjects import Stack
from streams.wire.messages import StreamMessage


class MemoryStates:
    """See `StreamStates`. Buckets in memory are no streams, and cannot be lost alone."""

    def __init__(self, streams: Mapping[str, MemoryStream], clock: Clock, *, stack: Stack) -> None:
        order = (*AGGREGATE_STREAMS, Stream.WORK, Stream.EVENTS, Stream.DEAD)
        self._clock = clock
        self._streams = {
            stack.part(stream, each): streams[stack.stream(stream, each)]
            for stream in order
            for each in stack.partitions_of(stream)
        }

    @property
    def parts(self) -> Sequence[str]:
        """See `StreamStates.parts`."""
        return list(self._streams)

    async def of(self, part: str) -> StreamState | None:
        """See `StreamStates.of`."""
        held = self._streams[part]
        if held.is_deleted:
            return None
        return StreamState(
            created=held.created,
            first_seq=held.first_seq,
            last_seq=held.last_seq,
            messages=held.messages,
            subjects=len(held.subjects()),
        )

    def newest(self, part: str) -> int:
        """See `StreamStates.newest`: all nodes are in this process."""
        return self._streams[part].newest_seq

    async def wait_doubt(self, *, within_s: float) -> bool:
        """See `StreamStates.wait_doubt`: nobody misses one."""
        await self._clock.sleep(within_s)
        return False

    def read(self, part: str, *, after: int) -> AbstractAsyncContextManager[RawReader]:
        """See `StreamStates.read`."""
        return nullcontext(MemoryFollower(self._streams[part], _as_stored, after=after))

    async def purge(self, part: str, *, below: int) -> int:
        """See `StreamStates.purge`."""
        return self._streams[part].purge_below(below)

    def stream(self, part: str) -> MemoryStream:
        """Return one, for who empties or deletes it as an operator would."""
        return self._streams[part]


def _as_stored(message: StreamMessage) -> RawMessage:
    return RawMessage(
        seq=message.seq,
        subject=message.subject,
        headers=message.headers,
        data=message.data,
        at=message.at,
    )
