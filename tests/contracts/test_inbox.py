"""What every `Inbox`, and every `Source` of commands, promises, be it one queue or three."""

from __future__ import annotations

import asyncio

import pytest

from streams.layout import Kind, Stream
from streams.model.commands import Attend, Recover
from streams.ports.delivery import ACK_WAIT_S, Unreadable
from streams.subjects import Stack
from tests.contracts.samples import SILENCE_S, WAIT_S, deliveries_of, opened, start, wait_backlog
from tests.contracts.time import ContractClock

MOMENTS_S = ACK_WAIT_S / 2
"""Less than what nobody answers for takes to come again, in seconds."""


def episodes(deliveries):
    return [delivery.content.episode_id for delivery in deliveries]


async def deliveries_by_name(source, *names):
    return sorted(await deliveries_of(source, len(names)), key=lambda each: each.content.episode_id)


async def send_all(inbox, *names):
    for name in names:
        await inbox.send(start(name), id=name)


@pytest.fixture
def stack(stack, partitions):
    return Stack(stack.name, partitions=partitions)


@pytest.fixture
def inbox(ports):
    return ports.commands


@pytest.fixture
def neighbours(stack):
    """Five episodes whose commands are in one partition."""
    names = [f"e{n}" for n in range(100)]
    home = stack.partition_of(Kind.EPISODE, names[0])
    return [name for name in names if stack.partition_of(Kind.EPISODE, name) == home][:5]


async def test_a_command_arrives_as_it_was_sent(inbox):
    recover = Recover(actor_id="monitor", episode_id="e1", reason="lapsed")
    async with opened(inbox.open("monitor")) as source:
        await inbox.send(recover, id="r1", trace="00-aa-bb-01")
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content == recover
    assert delivery.trace == "00-aa-bb-01"
    assert delivery.deliveries == 1


async def test_commands_of_a_partition_arrive_in_the_order_they_were_sent(inbox, neighbours):
    await send_all(inbox, *neighbours)
    async with opened(inbox.open("monitor")) as source:
        deliveries = await deliveries_of(source, 5, spare=5)
    assert episodes(deliveries) == neighbours
    assert [delivery.seq for delivery in deliveries] == [1, 2, 3, 4, 5]


async def test_commands_of_every_partition_arrive(inbox):
    names = [f"e{n}" for n in range(30)]
    await send_all(inbox, *names)
    async with opened(inbox.open("monitor")) as source:
        assert sorted(episodes(await deliveries_of(source, 30, spare=30))) == sorted(names)


async def test_a_source_with_room_for_one_gets_to_every_partition(inbox):
    names = [f"e{n}" for n in range(12)]
    await send_all(inbox, *names)
    async with opened(inbox.open("monitor")) as source:
        found = [await deliveries_of(source, 1) for _ in names]
    assert sorted(name for each in found for name in episodes(each)) == sorted(names)


async def test_a_command_waits_for_an_actor_that_was_never_opened(inbox):
    await inbox.send(start("e1"), id="1")
    async with opened(inbox.open("monitor")) as source:
        assert episodes(await deliveries_of(source, 1)) == ["e1"]


async def test_actors_get_their_own_commands_alone(inbox):
    await inbox.send(start("e1", actor="monitor"), id="1")
    await inbox.send(start("e2", actor="monitor-2"), id="2")
    async with opened(inbox.open("monitor-2")) as source:
        assert episodes(await deliveries_of(source, 1)) == ["e2"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_command_sent_twice_with_one_id_is_kept_once(inbox):
    await inbox.send(start("e1"), id="same")
    await inbox.send(start("e1"), id="same")
    async with opened(inbox.open("monitor")) as source:
        assert episodes(await deliveries_of(source, 1)) == ["e1"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_an_id_is_remembered_after_its_command_is_done(inbox):
    await inbox.send(start("e1"), id="same")
    async with opened(inbox.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
        await inbox.send(start("e1"), id="same")
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_source_returns_nothing_after_its_wait(inbox):
    async with opened(inbox.open("monitor")) as source:
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_waiting_source_wakes_when_a_command_comes(inbox):
    async with opened(inbox.open("monitor")) as source:
        waiting = asyncio.create_task(deliveries_of(source, 1))
        await inbox.send(start("e1"), id="1")
        assert episodes(await waiting) == ["e1"]


async def test_what_one_node_has_no_room_for_is_left_to_another(inbox):
    names = [f"e{n}" for n in range(5)]
    await send_all(inbox, *names)
    async with opened(inbox.open("monitor")) as busy, opened(inbox.open("monitor")) as idle:
        taken = episodes(await deliveries_of(busy, 2))
        left = episodes(await deliveries_of(idle, 3))
    assert sorted(taken + left) == names


async def test_a_paused_source_leaves_everything_to_another_at_once(inbox):
    """Nobody waits for the acknowledgement's deadline."""
    await inbox.send(start("first"), id="first")
    async with opened(inbox.open("monitor")) as full, opened(inbox.open("monitor")) as idle:
        (first,) = await full.receive(room=9, wait_s=WAIT_S)
        await send_all(inbox, "e1", "e2", "e3")
        await full.pause()
        await send_all(inbox, "e4", "e5", "e6")
        async with asyncio.timeout(MOMENTS_S):
            left = episodes(await deliveries_of(idle, 6))
        assert episodes([first]) == ["first"]
        assert sorted(left) == ["e1", "e2", "e3", "e4", "e5", "e6"]


async def test_a_paused_source_goes_on_with_the_next_receive(inbox):
    async with opened(inbox.open("monitor")) as source:
        assert list(await source.receive(room=3, wait_s=SILENCE_S)) == []
        for name in ("e1", "e2", "e3"):
            await source.pause()
            await inbox.send(start(name), id=name)
            async with asyncio.timeout(MOMENTS_S):
                (delivery,) = await deliveries_of(source, 1)
            assert episodes([delivery]) == [name]
            await delivery.ack()


async def test_a_paused_source_may_be_closed(inbox):
    async with opened(inbox.open("monitor")) as source:
        await source.pause()
    assert list(await source.receive(room=1, wait_s=WAIT_S)) == []


async def test_a_delivery_says_when_it_was_stored(inbox):
    before = ContractClock().now()
    await inbox.send(start("e1"), id="1")
    async with opened(inbox.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
        await delivery.nak()
        (again,) = await deliveries_of(source, 1)
    assert before <= delivery.at <= ContractClock().now()
    assert again.at == delivery.at


async def test_two_nodes_share_one_queue_without_doing_anything_twice(inbox):
    names = [f"e{n}" for n in range(20)]
    async with opened(inbox.open("monitor")) as one, opened(inbox.open("monitor")) as other:
        await send_all(inbox, *names)
        seen = []
        while len(seen) < len(names):
            for source in (one, other):
                seen += episodes(await source.receive(room=3, wait_s=SILENCE_S))
    assert sorted(seen) == sorted(names)


async def test_a_source_says_how_many_commands_wait(inbox, neighbours):
    await send_all(inbox, *neighbours)
    async with opened(inbox.open("monitor")) as source:
        await deliveries_of(source, 1)
        assert source.pending == 4


async def test_an_acknowledged_command_never_comes_again(inbox):
    await send_all(inbox, "done", "again")
    async with opened(inbox.open("monitor")) as source:
        again, done = await deliveries_by_name(source, "again", "done")
        await done.ack()
        await again.nak()
        assert episodes(await deliveries_of(source, 1)) == ["again"]
    async with opened(inbox.open("monitor")) as reopened:
        assert list(await reopened.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_command_handed_back_comes_again_and_is_counted(inbox):
    await inbox.send(start("e1"), id="1")
    async with opened(inbox.open("monitor")) as source:
        counts = []
        for _ in range(3):
            (delivery,) = await deliveries_of(source, 1)
            counts.append(delivery.deliveries)
            await delivery.nak()
    assert counts == [1, 2, 3]


async def test_a_command_handed_back_comes_to_another_node_too(inbox):
    await inbox.send(start("e1"), id="1")
    async with opened(inbox.open("monitor")) as one, opened(inbox.open("monitor")) as other:
        (delivery,) = await deliveries_of(one, 1)
        await delivery.nak()
        (again,) = await deliveries_of(other, 1)
    assert (again.content, again.deliveries) == (start("e1"), 2)


async def test_a_command_handed_back_for_later_comes_no_sooner(inbox):
    clock = ContractClock()
    await inbox.send(start("e1"), id="1")
    async with opened(inbox.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
        handed_back_s = clock.monotonic_s()
        await delivery.nak(delay_s=0.5)
        (again,) = await deliveries_of(source, 1)
    assert again.deliveries == 2
    assert clock.monotonic_s() - handed_back_s >= 0.45


async def test_a_terminated_command_never_comes_again(inbox):
    await send_all(inbox, "never", "again")
    async with opened(inbox.open("monitor")) as source:
        again, never = await deliveries_by_name(source, "again", "never")
        await never.term("no such expectation")
        await again.nak()
        assert episodes(await deliveries_of(source, 1)) == ["again"]
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []


@pytest.mark.parametrize("data", [b"", b"what?", b'{"type":"never@1"}', b'{"type":"\xff"}'])
async def test_what_is_no_command_arrives_as_it_came(inbox, stack, publish_raw, data):
    subject = stack.episode_inbox("monitor", "e1")
    await publish_raw(subject, data, {"Nats-Msg-Id": "m-1"})
    async with opened(inbox.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
    content = delivery.content
    assert isinstance(content, Unreadable)
    assert (content.reason, content.data, content.subject) == ("unreadable", data, subject)
    work = stack.stream(Stream.WORK, stack.partition_of(Kind.EPISODE, "e1"))
    assert (content.stream, content.seq) == (work, 1)
    assert content.headers["Nats-Msg-Id"] == "m-1"


async def test_closing_a_source_ends_the_wait_for_it(inbox):
    source = await inbox.open("monitor")
    waiting = asyncio.create_task(source.receive(room=1, wait_s=10 * WAIT_S))
    await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_S):
        await source.close()
        assert list(await waiting) == []


async def test_a_closed_source_leaves_what_it_never_returned_to_others(inbox):
    async with opened(inbox.open("monitor")) as source:
        assert list(await source.receive(room=5, wait_s=SILENCE_S)) == []
    await send_all(inbox, "e1", "e2")
    async with opened(inbox.open("monitor")) as other:
        assert sorted(episodes(await deliveries_of(other, 2))) == ["e1", "e2"]


async def test_what_is_said_to_an_episode_does_not_stand_behind_what_waits_for_room(inbox):
    attend = Attend(actor_id="monitor", episode_id="e1")
    await send_all(inbox, "e1", "e2")
    await inbox.send(attend, id="attend")
    async with opened(inbox.open_attending("monitor")) as said:
        assert [each.content for each in await deliveries_of(said, 1, spare=2)] == [attend]
    async with opened(inbox.open("monitor")) as calls:
        assert sorted(episodes(await deliveries_of(calls, 2, spare=1))) == ["e1", "e2"]


async def test_what_is_said_to_an_episode_waits_until_it_is_answered_for_too(inbox):
    await inbox.send(Attend(actor_id="monitor", episode_id="e1"), id="attend")
    async with opened(inbox.open_attending("monitor")) as said:
        (delivery,) = await deliveries_of(said, 1)
        assert await inbox.is_waiting("monitor", "e1")
        assert await inbox.backlog("monitor") == 1
        await delivery.ack()
        assert list(await said.receive(room=1, wait_s=SILENCE_S)) == []
        assert not await inbox.is_waiting("monitor", "e1")
        await wait_backlog(inbox, 0)


async def test_a_command_waits_until_it_is_answered_for(inbox):
    assert not await inbox.is_waiting("monitor", "e1")
    await inbox.send(start("e1"), id="1")
    assert await inbox.is_waiting("monitor", "e1")
    async with opened(inbox.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
        assert await inbox.is_waiting("monitor", "e1")
        await delivery.ack()
        assert list(await source.receive(room=1, wait_s=SILENCE_S)) == []
        assert not await inbox.is_waiting("monitor", "e1")


async def test_a_command_to_one_episode_does_not_wait_for_another(inbox):
    await inbox.send(start("e1"), id="1")
    assert not await inbox.is_waiting("monitor", "e2")
    assert not await inbox.is_waiting("monitor-2", "e1")


async def test_the_backlog_counts_what_waits_and_what_is_unanswered_in_every_partition(inbox):
    await send_all(inbox, *(f"e{number}" for number in range(9)))
    await inbox.send(start("e9", actor="other"), id="other")
    assert await inbox.backlog("monitor") == 0  # Nobody has opened it yet.
    async with opened(inbox.open("monitor")) as source:
        assert await inbox.backlog("monitor") == 9
        first, second, _ = await deliveries_of(source, 3)
        assert await inbox.backlog("monitor") == 9
        await first.ack()
        await second.nak(delay_s=60)
        await wait_backlog(inbox, 8)
