"""What the memory ports do as time passes: the parts of the contract that take too long on a
server (half a minute, two minutes, a day). Here nobody waits: the clock jumps."""

from __future__ import annotations

import asyncio
import heapq
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import msgspec
import pytest

from streams.errors import LeaseLost, TooLarge
from streams.memory import memory_ports
from streams.memory.leases import MARKER_KEPT_S
from streams.memory.stream import DEDUPE_WINDOW_S, MESSAGE_BYTES_MAX
from streams.model.commands import Start
from streams.model.events import StepAnnounced
from streams.ports.delivery import ACK_WAIT_S
from streams.ports.log import START, Commit
from streams.wire.codec import encode_commit

SETTLE_TURNS = 20  # Loop turns after which every task is either asleep or done.
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
HOUR_S = 3600.0


class JumpingClock:
    """A clock that stands still until every task sleeps, and then jumps to the next deadline."""

    def __init__(self):
        self.elapsed_s = 0.0
        self._sleepers = []
        self._order = count()

    def now(self):
        return EPOCH + timedelta(seconds=self.elapsed_s)

    def monotonic_s(self):
        return self.elapsed_s

    async def sleep(self, seconds):
        await self._awake_after(seconds)

    @asynccontextmanager
    async def timeout(self, seconds):
        awake = self._awake_after(seconds)
        try:
            async with asyncio.timeout(None) as limit:
                awake.add_done_callback(partial(self._cut_off, limit))
                yield limit
        finally:
            awake.cancel()

    def _awake_after(self, seconds):
        awake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.elapsed_s + seconds, next(self._order), awake))
        return awake

    @staticmethod
    def _cut_off(limit, awake):
        if not awake.cancelled():
            limit.reschedule(0)

    async def run(self):
        while True:
            for _ in range(SETTLE_TURNS):
                await asyncio.sleep(0)
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if self._sleepers:
                self.elapsed_s, _, awake = heapq.heappop(self._sleepers)
                awake.set_result(None)


@pytest.fixture
async def clock():
    clock = JumpingClock()
    jumping = asyncio.create_task(clock.run())
    yield clock
    jumping.cancel()
    await asyncio.wait((jumping,))


@pytest.fixture
def ports(clock):
    return memory_ports(clock=clock, lease_ttl_s=30.0)


@pytest.fixture
def start():
    return Start(actor_id="monitor", episode_id="e1")


@asynccontextmanager
async def no_task_left_behind():
    before = asyncio.all_tasks()
    yield
    assert asyncio.all_tasks() == before


async def receive(source, *, wait_s=HOUR_S):
    (delivery,) = await source.receive(room=10, wait_s=wait_s)
    return delivery


async def test_a_wait_takes_exactly_as_long_as_it_says(ports, clock):
    source = await ports.commands.open("monitor")
    assert list(await source.receive(room=1, wait_s=12.5)) == []
    assert clock.elapsed_s == 12.5


async def test_a_wait_leaves_no_task_behind(ports, start):
    source = await ports.commands.open("monitor")
    async with no_task_left_behind():
        await source.receive(room=1, wait_s=1.0)
        waiting = asyncio.ensure_future(source.receive(room=1, wait_s=HOUR_S))
        await asyncio.sleep(0)
        await ports.commands.send(start, id="1")
        await waiting


async def test_a_cancelled_wait_leaves_no_task_behind(ports):
    source = await ports.commands.open("monitor")
    async with no_task_left_behind():
        waiting = asyncio.ensure_future(source.receive(room=1, wait_s=HOUR_S))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_wait_of_no_time_returns_at_once(ports, clock):
    source = await ports.commands.open("monitor")
    assert list(await source.receive(room=1, wait_s=0.0)) == []
    assert clock.elapsed_s == 0.0


async def test_a_clock_that_fails_is_heard(start):
    class Stopped(JumpingClock):
        def timeout(self, seconds):
            raise OSError("the clock stopped")

    source = await memory_ports(clock=Stopped()).commands.open("monitor")
    with pytest.raises(OSError, match="stopped"):
        await source.receive(room=1, wait_s=1.0)


async def test_a_command_that_nobody_answers_comes_again(ports, clock, start):
    await ports.commands.send(start, id="1")
    source = await ports.commands.open("monitor")
    counts = [(await receive(source)).deliveries for _ in range(3)]
    assert counts == [1, 2, 3]
    assert clock.elapsed_s == 2 * ACK_WAIT_S


async def test_an_answered_command_does_not_come_again(ports, start):
    await ports.commands.send(start, id="1")
    source = await ports.commands.open("monitor")
    await (await receive(source)).ack()
    assert list(await source.receive(room=1, wait_s=HOUR_S)) == []


async def test_a_late_answer_still_counts(ports, start):
    await ports.commands.send(start, id="1")
    source = await ports.commands.open("monitor")
    late = await receive(source)
    again = await receive(source)
    await late.ack()
    await again.nak()
    assert list(await source.receive(room=1, wait_s=HOUR_S)) == []


async def test_an_event_that_nobody_answers_comes_again_to_another_node(ports):
    one, other = [await ports.domain_events.open("monitor", ["a"]) for _ in range(2)]
    await ports.domain_events.publish("a", {}, id="ev-1")
    await receive(one)
    await one.close()
    again = await receive(other)
    assert (again.content.id, again.deliveries) == ("ev-1", 2)


async def test_a_closed_source_returns_nothing_at_once(ports, clock, start):
    await ports.commands.send(start, id="1")
    source = await ports.commands.open("monitor")
    await source.close()
    assert list(await source.receive(room=1, wait_s=HOUR_S)) == []
    assert clock.elapsed_s == 0.0


async def test_a_source_refuses_to_return_nothing(ports):
    source = await ports.commands.open("monitor")
    with pytest.raises(ValueError, match="at least 1"):
        await source.receive(room=0, wait_s=1.0)


async def test_an_id_is_forgotten_after_its_window(ports, clock):
    first = await ports.domain_events.publish("a", {}, id="same")
    await clock.sleep(DEDUPE_WINDOW_S - 1)
    assert await ports.domain_events.publish("a", {}, id="same") == first
    await clock.sleep(1)
    assert await ports.domain_events.publish("a", {}, id="same") == first + 1


async def test_a_lease_ends_exactly_when_its_holder_stops_trusting_it(ports, clock):
    lease = await ports.leases.acquire("k", holder="n1")
    async with ports.leases.watch(after=lease.revision) as watch:
        (change,) = await watch.receive(most=10, wait_s=HOUR_S)
    assert change.state == "expired"
    assert change.at == EPOCH + timedelta(seconds=30)
    assert clock.elapsed_s == lease.trusted_until_s == 30.0
    with pytest.raises(LeaseLost):
        lease.check(monotonic_s=clock.monotonic_s())


async def test_a_lapse_that_nobody_watched_is_seen_when_it_happened(ports, clock):
    await ports.leases.acquire("k", holder="n1")
    await clock.sleep(HOUR_S)
    async with ports.leases.watch() as watch:
        (change,) = await watch.receive(most=10, wait_s=1.0)
    assert (change.state, change.at) == ("expired", EPOCH + timedelta(seconds=30))


async def test_leases_lapse_in_the_order_in_which_they_ended(ports, clock):
    first = await ports.leases.acquire("first", holder="n1")
    await clock.sleep(1)
    await ports.leases.acquire("second", holder="n1")
    await clock.sleep(1)
    await ports.leases.renew(first)
    await clock.sleep(HOUR_S)
    async with ports.leases.watch() as watch:
        changes = await watch.receive(most=10, wait_s=1.0)
    assert [change.key for change in changes] == ["second", "first"]


async def test_a_marker_is_kept_for_a_day(ports, clock):
    await ports.leases.acquire("k", holder="n1")
    await clock.sleep(30 + MARKER_KEPT_S - 1)
    async with ports.leases.watch() as watch:
        assert [c.state for c in await watch.receive(most=1, wait_s=0.0)] == ["expired"]
    await clock.sleep(1)
    async with ports.leases.watch() as watch:
        assert list(await watch.receive(most=1, wait_s=0.0)) == []


async def test_a_release_leaves_no_marker(ports):
    await ports.leases.complete(await ports.leases.acquire("k", holder="n1"))
    async with ports.leases.watch() as watch:
        assert list(await watch.receive(most=1, wait_s=HOUR_S)) == []


async def test_a_slow_watcher_gets_the_newest_change_of_each_key_once(ports):
    async with ports.leases.watch() as watch:
        a = await ports.leases.acquire("a", holder="n1")
        b = await ports.leases.acquire("b", holder="n1")
        await ports.leases.renew(a)
        await ports.leases.complete(b)
        changes = await watch.receive(most=10, wait_s=1.0)
    assert [(change.key, change.state) for change in changes] == [("a", "claimed"), ("b", "done")]


def commit_of(body_bytes):
    """Return a commit whose message body is exactly so long."""
    step = StepAnnounced(step_no=1, fingerprint="", tool_name="t", idempotency_key="k")
    empty = Commit(id="c1", at=EPOCH, events=(step,))
    padding = "x" * (body_bytes - len(encode_commit(empty)))
    padded = msgspec.structs.replace(step, fingerprint=padding)
    return msgspec.structs.replace(empty, events=(padded,))


async def test_the_headers_count_towards_the_limit_of_a_message(ports):
    subject = ports.stack.episode("e1")
    with pytest.raises(TooLarge):
        await ports.log.append(subject, commit_of(MESSAGE_BYTES_MAX), after=START)
    assert await ports.log.head() == 0
    await ports.log.append(subject, commit_of(MESSAGE_BYTES_MAX - 200), after=START)


async def test_the_same_calls_make_the_same_log(clock, start):
    async def life():
        ports = memory_ports(clock=clock)
        await ports.commands.send(start, id="1")
        await ports.domain_events.publish("a", {"n": 1}, id="ev-1")
        lease = await ports.leases.acquire("k", holder="n1")
        source = await ports.commands.open("monitor")
        return lease, (await receive(source)).content, await ports.log.head()

    assert await life() == await life()
