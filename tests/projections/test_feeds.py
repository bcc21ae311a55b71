"""Messages gather for a transaction, and what is handed out is never lost or told twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from projections.postgres.batches import (
    CLAIMS_GATHER_S,
    ENOUGH,
    GATHER_S,
    GATHERINGS_MAX,
    GLEAN_S_MAX,
    MANY,
    MESSAGES_AT_ONCE,
    MESSAGES_MAX,
    ClaimSource,
    LogSource,
)
from streams.clock import SystemClock
from streams.errors import UnreadableEvent
from streams.layout import Stream
from tests.projections import lives
from tests.projections.lives import append


class StoppedClock(SystemClock):
    """Time stands still but for those who wait for it; it counts their waits."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.waits: list[float] = []

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def monotonic_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._now_s += seconds
        await asyncio.sleep(0)


def feed(ports, clock):
    return LogSource(ports, Stream.JOURNAL, 0, clock=clock)


async def open_many(ports, *, first, count):
    for number in range(first, first + count):
        await append(ports.log, ports.stack.episode(lives.episode_id(number)), (lives.opened(),))


async def claim_many(ports, *, first, count):
    for number in range(first, first + count):
        await ports.leases.acquire(f"episode.{number}", holder="n1")


async def test_what_comes_after_a_pause_is_handed_out_at_once(ports):
    clock = StoppedClock()
    async with feed(ports, clock).open(after=0, mark="") as reader:
        await open_many(ports, first=1, count=1)
        batch = await reader.receive()
    assert (batch.position, clock.waits) == (1, [])


async def test_what_comes_soon_after_is_gathered(ports):
    clock = StoppedClock()
    async with feed(ports, clock).open(after=0, mark="") as reader:
        await open_many(ports, first=1, count=1)
        await reader.receive()
        await open_many(ports, first=2, count=3)
        batch = await reader.receive()
    assert (batch.position, batch.events) == (4, 3)
    assert clock.waits == [pytest.approx(GATHER_S)]


async def test_many_are_gathered_for_longer(ports):
    clock = StoppedClock()
    async with feed(ports, clock).open(after=0, mark="") as reader:
        await open_many(ports, first=1, count=1)
        await reader.receive()
        await open_many(ports, first=2, count=MANY)
        batch = await reader.receive()
    assert batch.events == MANY
    assert clock.waits == [pytest.approx(GATHER_S)] * GATHERINGS_MAX


async def test_many_after_a_pause_are_handed_out_at_once(ports):
    clock = StoppedClock()
    async with feed(ports, clock).open(after=0, mark="") as reader:
        await open_many(ports, first=1, count=MANY)
        batch = await reader.receive()
    assert (batch.events, clock.waits) == (MANY, [])


async def test_enough_are_gathered_no_longer(ports):
    clock = StoppedClock()
    async with feed(ports, clock).open(after=0, mark="") as reader:
        await open_many(ports, first=1, count=1)
        await reader.receive()
        await open_many(ports, first=2, count=ENOUGH)
        batch = await reader.receive()
    assert batch.events == ENOUGH
    assert clock.waits == [pytest.approx(GATHER_S)]


async def test_many_claims_are_gathered_for_longer_once_claims_have_come(ports):
    clock = StoppedClock()
    async with ClaimSource(ports, clock).open(after=0, mark="") as reader:
        await claim_many(ports, first=0, count=1)
        assert (await reader.receive()).events == 1
        assert clock.waits == []
        await claim_many(ports, first=1, count=MANY - 1)
        assert (await reader.receive()).events == MANY - 1
        assert clock.waits == [pytest.approx(CLAIMS_GATHER_S)]
        await claim_many(ports, first=MANY, count=MANY)
        assert (await reader.receive()).events == MANY
    assert clock.waits == [pytest.approx(CLAIMS_GATHER_S)] * (1 + GATHERINGS_MAX)


async def test_nobody_rests_while_a_full_gleaning_waits(ports):
    clock = StoppedClock()
    await open_many(ports, first=1, count=3 * MESSAGES_MAX)
    async with feed(ports, clock).open(after=0, mark="") as reader:
        full = [await reader.receive() for _ in range(2)]
        assert clock.waits == []
        last = await reader.receive()
    assert [batch.position for batch in (*full, last)] == [
        each * MESSAGES_MAX for each in (1, 2, 3)
    ]


async def test_what_cannot_be_read_is_told_after_what_came_before_it(ports):
    await open_many(ports, first=1, count=MESSAGES_MAX // 4)
    ports.log.publish_raw(ports.stack.episode(lives.episode_id(1)), b"{", {})
    async with feed(ports, StoppedClock()).open(after=0, mark="") as reader:
        batch = await reader.receive()
        assert (batch.position, batch.events) == (MESSAGES_MAX // 4, MESSAGES_MAX // 4)
        for _ in range(2):
            with pytest.raises(UnreadableEvent, match=f"@{batch.position + 1}"):
                await reader.receive()


class SlowClock(StoppedClock):
    """Every look at it takes as long as a batch may."""

    def monotonic_s(self) -> float:
        self._now_s += GLEAN_S_MAX
        return self._now_s


async def test_messages_that_take_long_are_not_all_taken_at_once(ports):
    await open_many(ports, first=1, count=3 * MESSAGES_AT_ONCE)
    async with feed(ports, SlowClock()).open(after=0, mark="") as reader:
        batches = [await reader.receive() for _ in range(3)]
    assert [batch.position for batch in batches] == [each * MESSAGES_AT_ONCE for each in (1, 2, 3)]
