"""The source of an actor that watches no events.

A consumer without a filter would get everything, so there is none at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from streams.jetstream.connection.link import wait_set
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.domain_events import DomainEvent


class NullSource:
    """`Source` of nothing."""

    pending = 0

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def receive(
        self,
        *,
        room: int,  # noqa: ARG002 - as every source is asked
        wait_s: float,
    ) -> Sequence[Delivery[DomainEvent | Unreadable]]:
        """Return nothing, after `wait_s` or when closed."""
        await wait_set(self._closed, timeout_s=wait_s)
        return ()

    async def pause(self) -> None:
        """Go on asking for nothing."""

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """Hand back nothing."""
        return is_whole

    async def close(self) -> None:
        """Let a `receive` that waits return."""
        self._closed.set()
