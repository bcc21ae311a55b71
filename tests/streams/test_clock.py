"""Waiting for a wall time on machines whose clocks do not go equally fast."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from streams.clock import SystemClock, wait_until

BEGUN = datetime(2030, 1, 1, tzinfo=UTC)


class SlowWall(SystemClock):
    """The machine sets its wall time right: that goes slower than the clock of the event loop."""

    def __init__(self) -> None:
        self.at = BEGUN

    def now(self) -> datetime:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=0.9995 * seconds, microseconds=1)


async def test_it_is_that_time_afterwards():
    clock, until = SlowWall(), BEGUN + timedelta(seconds=2)

    await wait_until(clock, until)

    assert until <= clock.now() < until + timedelta(milliseconds=1)
