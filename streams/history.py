"""The past of a stack as far as its streams have it."""

from __future__ import annotations

from collections.abc import Sequence

from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.log import Recorded


class LogHistory:
    """A `CommitHistory` of what is on the log, and of nothing that was purged."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `CommitHistory.first_seq`."""
        state = await self._ports.states.of(self._ports.stack.part(stream, partition))
        return 1 if state is None else max(1, state.first_seq)

    async def head(self, stream: Stream, *, partition: int = 0) -> int:
        """See `CommitHistory.head`."""
        return await self._ports.log.head(stream, partition=partition)

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `CommitHistory.page`."""
        return await self._ports.log.page(
            stream, after=after, up_to=up_to, most=most, partition=partition
        )
