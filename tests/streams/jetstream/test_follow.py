"""Reading a stream in order, against a server that takes the reader's consumer away."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

import pytest

from streams.errors import Unavailable
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.follow import (
    PULL_BYTES_MAX,
    SILENT_BEATS_MAX,
    WAITING_MAX,
    OrderedConsumer,
    Tails,
)
from streams.layout import Stream
from tests.contracts.samples import commit, next_of
from tests.streams.jetstream.wire import Wire, eventually

SLACK_S: Final = 1.5


@pytest.fixture
async def ports(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        yield ports


@pytest.fixture
async def link(nats):
    async with Link(nats.url, LinkSettings()) as link:
        yield link


@pytest.fixture
def journal(stack):
    return stack.stream(Stream.JOURNAL)


async def consumers_of(link, stream):
    return (await api.call(link, f"CONSUMER.NAMES.{stream}")).get("consumers") or []


async def has_consumers(link, stream, *, count):
    return len(await consumers_of(link, stream)) == count


async def has_waiting(follower, *, count):
    return follower.waiting == count


async def fill(log, subject, *, count, tool_name="disk.read"):
    after = 0
    for number in range(count):
        after = await log.append(subject, commit(f"c{number}", tool_name=tool_name), after=after)


async def test_a_deleted_consumer_is_replaced_without_gap_or_repeat(ports, link, stack, journal):
    async with ports.log.follow() as follower:
        await fill(ports.log, stack.episode("e1"), count=3)
        assert [r.seq for r in await next_of(follower, 3)] == [1, 2, 3]
        (consumer,) = await consumers_of(link, journal)
        receiving = asyncio.create_task(next_of(follower, 2))
        await link.ask(f"$JS.API.CONSUMER.DELETE.{journal}.{consumer}")
        await fill(ports.log, stack.episode("e2"), count=2)
        assert [r.seq for r in await receiving] == [4, 5]


async def test_followers_that_have_come_as_far_share_a_consumer(ports, link, stack, journal):
    async with ports.log.follow() as one, ports.log.follow() as other:
        await fill(ports.log, stack.episode("e1"), count=2)
        assert [r.seq for r in await next_of(one, 2)] == [1, 2]
        assert [r.seq for r in await next_of(other, 2)] == [1, 2]
        await eventually(partial(has_consumers, link, journal, count=1))
        await fill(ports.log, stack.episode("e2"), count=1)
        (record,), (same,) = await next_of(one, 1), await next_of(other, 1)
        assert record is same  # Decoded once.


async def test_a_follower_that_is_behind_has_a_consumer_of_its_own(ports, link, stack, journal):
    subjects = [stack.episode(f"e{number}") for number in range(16)]
    await asyncio.gather(*(fill(ports.log, subject, count=100) for subject in subjects))
    async with ports.log.follow() as one, ports.log.follow() as other:
        await next_of(one, 1_600)
        (first,) = await other.receive(most=1, wait_s=5.0)
        assert await has_consumers(link, journal, count=2)
        rest = await next_of(other, 1_599)
        assert [first.seq, *(r.seq for r in rest)] == list(range(1, 1_601))
        await eventually(partial(has_consumers, link, journal, count=1))


async def test_a_follower_past_those_that_rest_hears_nothing_again(ports, stack):
    """It moves their consumer on, and who has no room left then goes on by itself."""
    subjects = [stack.episode(f"e{number}") for number in range(16)]
    await asyncio.gather(*(fill(ports.log, subject, count=100) for subject in subjects))
    async with ports.log.follow() as slow, ports.log.follow(after=1_400) as other:
        (first,) = await slow.receive(most=1, wait_s=5.0)
        await eventually(partial(has_waiting, slow, count=WAITING_MAX - 1))
        assert [r.seq for r in await next_of(other, 200)] == list(range(1_401, 1_601))
        assert slow.waiting == WAITING_MAX
        rest = await next_of(slow, 1_599)
        assert [first.seq, *(r.seq for r in rest)] == list(range(1, 1_601))


async def test_followers_share_no_consumer_of_another_stream_of_that_name(link, journal):
    tails = Tails()
    consumer = OrderedConsumer(link, (journal, ()), "2026-01-01", 0)
    tails.put((journal, ()), consumer)
    assert tails.of((journal, ()), "2026-01-01") is consumer
    assert tails.of((journal, ()), "2026-01-02") is None


async def test_all_who_share_a_consumer_that_is_deleted_go_on(ports, link, stack, journal):
    async with ports.log.follow() as one, ports.log.follow() as other:
        await fill(ports.log, stack.episode("e1"), count=2)
        assert len(await next_of(one, 2)) == len(await next_of(other, 2)) == 2
        await eventually(partial(has_consumers, link, journal, count=1))
        (consumer,) = await consumers_of(link, journal)
        receiving = [asyncio.create_task(next_of(each, 2)) for each in (one, other)]
        await link.ask(f"$JS.API.CONSUMER.DELETE.{journal}.{consumer}")
        await fill(ports.log, stack.episode("e2"), count=2)
        assert [[r.seq for r in await each] for each in receiving] == [[3, 4], [3, 4]]
        await eventually(partial(has_consumers, link, journal, count=1))


async def test_a_stream_made_anew_is_not_read_on_as_if_it_were_the_old_one(
    nats, ports, link, stack, journal
):
    """Not even when it is longer than the old one by the time that the reader is back."""
    async with ports.log.follow() as follower:
        await fill(ports.log, stack.episode("e1"), count=3)
        await next_of(follower, 3)
        await api.call(link, f"STREAM.DELETE.{journal}")
        async with connect(nats.url, stack=stack) as anew:
            await fill(anew.log, stack.episode("e2"), count=5)
            with pytest.raises(Unavailable, match="made anew"):
                await next_of(follower, 1)


async def test_a_stream_that_ends_before_what_was_read_is_not_waited_for(ports, stack):
    """As after a crash that lost its end, or a return to an older copy."""
    await fill(ports.log, stack.episode("e1"), count=3)
    async with ports.log.follow(after=5) as follower:
        with pytest.raises(Unavailable, match="ends at 3"):
            await next_of(follower, 1)


async def test_a_closed_follower_leaves_no_consumer(ports, link, stack, journal):
    async with ports.log.follow() as follower:
        await fill(ports.log, stack.episode("e1"), count=1)
        await next_of(follower, 1)
        assert len(await consumers_of(link, journal)) == 1

    async def is_gone():
        return await consumers_of(link, journal) == []

    await eventually(is_gone)


async def test_messages_that_are_lost_on_the_way_come_after_all(nats, ports, stack):
    async with (
        Wire(nats.url) as wire,
        connect(wire.url, stack=stack) as wired,
        wired.log.follow() as follower,
    ):
        await fill(ports.log, stack.episode("e1"), count=2)
        assert [r.seq for r in await next_of(follower, 2)] == [1, 2]
        wire.loses_answers = True
        await fill(ports.log, stack.episode("e2"), count=2)
        receiving = asyncio.create_task(next_of(follower, 2))
        await asyncio.sleep(0)
        wire.cut()
        assert [r.seq for r in await receiving] == [3, 4]


async def test_a_slow_reader_is_not_run_over(ports, stack):
    """More than two pulls can hold, by number: nothing is skipped while nobody receives."""
    subjects = [stack.episode(f"e{number}") for number in range(25)]
    await asyncio.gather(*(fill(ports.log, subject, count=100) for subject in subjects))
    async with ports.log.follow() as follower:
        (first,) = await follower.receive(most=1, wait_s=5.0)
        rest = await next_of(follower, 2_499)
        assert [first.seq, *(r.seq for r in rest)] == list(range(1, 2_501))
        assert follower.pending == 0


async def test_large_messages_arrive_although_a_pull_has_a_limit_in_bytes(ports, stack):
    large, count = "x" * 900_000, 2 * PULL_BYTES_MAX // 900_000 + 3
    await fill(ports.log, stack.episode("e1"), count=count, tool_name=large)
    started_s = time.monotonic()
    async with ports.log.follow() as follower:
        records = await next_of(follower, count)
    assert [r.seq for r in records] == list(range(1, count + 1))
    assert time.monotonic() - started_s < SILENT_BEATS_MAX * LinkSettings().heartbeat_s


async def test_a_follower_that_nobody_asked_for_a_while_goes_on(ports, link, stack, journal):
    """The server drops consumers that nobody pulls from; the position is the reader's."""
    async with ports.log.follow() as follower:
        await fill(ports.log, stack.episode("e1"), count=2)
        assert [r.seq for r in await next_of(follower, 2)] == [1, 2]
        (consumer,) = await consumers_of(link, journal)
        await link.ask(f"$JS.API.CONSUMER.DELETE.{journal}.{consumer}")
        await fill(ports.log, stack.episode("e2"), count=1)
        assert [r.seq for r in await next_of(follower, 1)] == [3]


async def test_waiting_for_nothing_takes_as_long_as_was_said(ports):
    async with ports.log.follow() as follower:
        started_s = time.monotonic()
        assert list(await follower.receive(most=1, wait_s=0.2)) == []
        assert 0.2 <= time.monotonic() - started_s < 0.2 + SLACK_S


async def test_a_follower_without_a_server_returns_nothing_and_goes_on_later(own_nats, stack):
    async with connect(own_nats.url, stack=stack) as ports, ports.log.follow() as follower:
        await fill(ports.log, stack.episode("e1"), count=1)
        assert [r.seq for r in await next_of(follower, 1)] == [1]
        own_nats.kill()
        assert list(await follower.receive(most=1, wait_s=0.3)) == []
        own_nats.restart()
        await fill(ports.log, stack.episode("e2"), count=1)
        assert [r.seq for r in await next_of(follower, 1)] == [2]


@pytest.mark.parametrize(
    ("settings", "beat_s"),
    [
        (LinkSettings(), 10),
        (LinkSettings(replicas=3), 1),
        (LinkSettings(domain="hub"), 1),
    ],
    ids=["a single server", "replicas", "another domain"],
)
def test_pulls_are_heard_of_often_where_a_server_may_be_lost_behind_our_connection(
    settings, beat_s
):
    assert settings.heartbeat_s == beat_s
