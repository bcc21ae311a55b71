"""The past of a stack as far as its log can read it."""

from __future__ import annotations

from collections.abc import Sequence

from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.log import Recorded


class LogHistory:
    """A `CommitHistory` of what the ports read: with `with_history`, what was archived, too."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `CommitHistory.first_seq`."""
        return await self._ports.log.first_seq(stream, partition=partition)

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
