"""Time that passes by itself, and time that is skipped where there is nothing to wait for.

What is behind a port may be a server, which needs its time. In memory, nothing happens but what
the test and the adapter do: once both are asleep, waiting for the next deadline tells nothing. So
there the time to it is skipped, which is exact on a busy machine, too.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from datetime import UTC, datetime, timedelta
from typing import Any


class Stuck(Exception):
    """Every task waits for something that no other task will ever do."""


class _Waits(selectors.DefaultSelector):
    """Waits as any does, or adds to `skipped_s` what it is asked to wait."""

    are_skipped = False
    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if not self.are_skipped:
            return super().select(timeout)
        found = super().select(0)
        if not found and timeout is None:
            raise Stuck
        if not found:
            self.skipped_s += max(0.0, timeout or 0.0)
        return found


class ContractLoop(asyncio.SelectorEventLoop):
    """An event loop in the machine's time, which may skip all waits."""

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    @property
    def skipped_s(self) -> float:
        """How much time was skipped, in seconds."""
        return self._waits.skipped_s

    def skip_waits(self) -> None:
        """Wait no more, as nothing outside of this process is waited for."""
        self._waits.are_skipped = True

    def time(self) -> float:
        return time.monotonic() + self._waits.skipped_s


class ContractClock:
    """The clock of whatever is behind the ports: the machine's, and what was skipped."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=running_loop().skipped_s)

    def monotonic_s(self) -> float:
        return running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


def running_loop() -> ContractLoop:
    """Return the loop that every test of the contracts runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ContractLoop)
    return loop
