"""Stores why events did not fire, in the background: what a node's gates note, once a second."""

from __future__ import annotations

from typing import Final

from engine import telemetry
from engine.runtime.dropping import DroppingBuffer
from streams.clock import Clock
from streams.errors import Unavailable
from streams.model.refusals import Refusal
from streams.ports.refusals import Refusals

FLUSH_S: Final = 1.0
"""Between the first refusal and the storing of all since, in seconds: what a crash may lose."""


class RefusalWriter:
    """Stores the refusals of one node."""

    def __init__(self, buffer: DroppingBuffer[Refusal], port: Refusals, clock: Clock) -> None:
        self._buffer, self._port, self._clock = buffer, port, clock

    async def run(self) -> None:
        """Store what is noted, for ever."""
        while True:
            await self._buffer.news.wait()
            await self._clock.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Store all that was noted, or drop it: nothing waits for it, and more is coming."""
        refusals, dropped = self._buffer.take()
        if dropped:
            telemetry.refusals_dropped.add(dropped, {"loss": "full"})
        try:
            await self._port.store(refusals)
        except Unavailable:  # guard: unstored-dropped-and-counted
            telemetry.refusals_dropped.add(len(refusals), {"loss": "not_stored"})
