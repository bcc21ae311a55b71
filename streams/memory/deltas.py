"""Deltas in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from streams.clock import Clock
from streams.memory.bell import Bell
from streams.model.deltas import Delta
from streams.ports.deltas import WAITING_MAX


class MemoryDeltaListener:
    """See `streams.ports.deltas.DeltaListener`."""

    def __init__(self, clock: Clock) -> None:
        self._bell = Bell(clock)
        self._waiting: deque[Delta] = deque(maxlen=WAITING_MAX)

    def hear(self, delta: Delta) -> None:
        """Have `delta` wait to be received."""
        self._waiting.append(delta)
        self._bell.ring()

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Delta]:
        """See `DeltaListener.receive`."""
        return await self._bell.wait_some(lambda: self._take(most), wait_s=wait_s)

    def _take(self, most: int) -> Sequence[Delta]:
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]


class MemoryDeltas:
    """See `streams.ports.deltas.Deltas`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: dict[MemoryDeltaListener, str] = {}
        """With the episodes that they listen to."""

    def publish(self, episode_id: str, delta: Delta) -> None:
        """See `Deltas.publish`."""
        for listener, heard in self._listeners.items():
            if heard == episode_id:
                listener.hear(delta)

    @asynccontextmanager
    async def listen(self, episode_id: str) -> AsyncIterator[MemoryDeltaListener]:
        """See `Deltas.listen`."""
        listener = MemoryDeltaListener(self._clock)
        self._listeners[listener] = episode_id
        try:
            yield listener
        finally:
            del self._listeners[listener]
