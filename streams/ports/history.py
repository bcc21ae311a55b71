"""The port to the past of a stack: every commit, from the first one, whoever keeps it by now.

The streams keep commits until they are purged; what an archive has before that can be read through
the same port, so that whoever reads from the beginning need not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streams.layout import Stream
from streams.ports.log import Recorded


class CommitHistory(Protocol):
    """What a stack has ever committed, in the order of each of its streams."""

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """Return the first sequence that can be read; 1: nothing is missing at the beginning."""

    async def head(self, stream: Stream, *, partition: int = 0) -> int:
        """Return the sequence of the newest message; 0 when there never was one."""

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """Return the first commits past `after` up to `up_to`, as `EventLog.page` does."""
