"""What every `Timers` promises, and every `Source` of due timers, be it one queue or three."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from streams.errors import BadName, TimerConflict, TooLarge, UnreadableEvent
from streams.layout import Stream
from streams.ports.delivery import Unreadable
from streams.ports.timers import DUE_MAX, TIMER_BYTES_MAX, Due, PendingTimer, Timer
from streams.subjects import Stack
from tests.contracts.samples import SILENCE_S, deliveries_of, opened, start, wait_backlog
from tests.contracts.time import ContractClock

SOON = timedelta(seconds=0.5)
"""Late enough to be waited for. No test fails if it is over before its time."""

LATER = timedelta(hours=1)
MANY = 1_000


def in_(delay):
    """Return the time that is `delay` from now, by the machine's clock, which is the server's."""
    return ContractClock().now() + delay


def timer(key="web-1", *, actor="monitor", purpose="debounce", **payload):
    return Timer(actor=actor, purpose=purpose, key=key, payload=payload)


def keys(deliveries):
    return [delivery.content.key for delivery in deliveries]


def payloads(deliveries):
    return [delivery.content.payload for delivery in deliveries]


@pytest.fixture
def stack(stack, partitions):
    return Stack(stack.name, partitions=partitions)


@pytest.fixture
def timers(ports):
    return ports.timers


async def nothing_comes(source):
    return list(await source.receive(room=10, wait_s=SILENCE_S)) == []


async def test_a_timer_fires_at_its_time_and_as_it_was_armed(timers):
    payload = {"host": "münchen-1", "events": ["a", None], "n": 2**63}
    due_at = in_(SOON)
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer(**payload), at=due_at, trace="00-aa-bb-01")
        (delivery,) = await deliveries_of(source, 1)
    content = delivery.content
    assert isinstance(content, Due)
    assert (content.purpose, content.key, content.payload) == ("debounce", "web-1", payload)
    assert content.due_at == due_at <= content.fired_at
    assert (delivery.trace, delivery.deliveries) == ("00-aa-bb-01", 1)


async def test_a_timer_fires_once(timers):
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer(), at=in_(SOON))
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
        assert await nothing_comes(source)
    assert await timers.pending("monitor", "debounce", "web-1") is None


async def test_a_timer_whose_time_is_past_fires_at_once(timers):
    long_ago = [datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1600, 1970, 2020)]
    async with opened(timers.open("monitor")) as source:
        for due_at in long_ago:
            await timers.arm(timer(f"{due_at.year}"), at=due_at)
        deliveries = await deliveries_of(source, len(long_ago))
    assert sorted(each.content.due_at for each in deliveries) == long_ago
    assert all(each.content.fired_at.year > 2020 for each in deliveries)


async def test_a_timer_waits_for_an_actor_that_was_never_opened(timers):
    async with opened(timers.open("other")) as other:
        await timers.arm(timer(actor="monitor"), at=in_(-LATER))
        await timers.arm(timer(actor="other"), at=in_(SOON))
        await deliveries_of(other, 1)  # So the first has fired, too, and nobody was there.
    async with opened(timers.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content.key == "web-1"


async def test_arming_again_replaces_what_is_pending(timers):
    async with opened(timers.open("monitor")) as source:
        for n in range(5):
            await timers.arm(timer(n=n), at=in_(LATER))
        await timers.arm(timer(n=5), at=in_(-LATER))
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
        assert delivery.content.payload == {"n": 5}
        assert await nothing_comes(source)
    assert await timers.pending("monitor", "debounce", "web-1") is None


async def test_arming_again_may_bring_a_timer_forward(timers):
    async with opened(timers.open("monitor")) as source:
        waiting = asyncio.create_task(deliveries_of(source, 1))
        await timers.arm(timer(n=1), at=in_(LATER))
        await timers.arm(timer(n=2), at=in_(SOON))
        assert payloads(await waiting) == [{"n": 2}]


async def test_a_timer_that_fired_can_be_armed_again(timers):
    async with opened(timers.open("monitor")) as source:
        for n in range(2):
            await timers.arm(timer(n=n), at=in_(-LATER))
            (delivery,) = await deliveries_of(source, 1)
            await delivery.ack()
            assert delivery.content.payload == {"n": n}


async def test_actor_purpose_and_key_all_name_a_timer(timers):
    names = [("monitor", "debounce", "a"), ("monitor", "debounce", "b"), ("monitor", "expiry", "a")]
    for actor, purpose, key in names:
        await timers.arm(timer(key, actor=actor, purpose=purpose), at=in_(-LATER))
    await timers.arm(timer("a", actor="other"), at=in_(-LATER))
    async with opened(timers.open("monitor")) as source:
        deliveries = await deliveries_of(source, len(names))
        assert await nothing_comes(source)
    found = [("monitor", each.content.purpose, each.content.key) for each in deliveries]
    assert sorted(found) == sorted(names)


async def test_what_is_pending_can_be_read(timers):
    due_at = in_(LATER)
    revision = await timers.arm(timer(n=1), at=due_at)
    assert await timers.pending("monitor", "debounce", "web-1") == PendingTimer(
        payload={"n": 1}, due_at=due_at, revision=revision
    )
    assert await timers.pending("monitor", "debounce", "web-2") is None
    assert await timers.pending("monitor", "expiry", "web-1") is None
    assert await timers.pending("other", "debounce", "web-1") is None


async def test_a_time_in_another_zone_is_the_same_time(timers):
    due_at = in_(LATER).astimezone(timezone(timedelta(hours=5, minutes=30)))
    await timers.arm(timer(), at=due_at)
    pending = await timers.pending("monitor", "debounce", "web-1")
    assert (pending.due_at, pending.due_at.utcoffset()) == (due_at, timedelta(0))


async def test_exactly_the_timer_that_was_read_is_replaced(timers):
    first = await timers.arm(timer(n=1), at=in_(LATER), expecting=0)
    second = await timers.arm(timer(n=2), at=in_(LATER), expecting=first)
    assert first != second
    for stale in (0, first):
        with pytest.raises(TimerConflict):
            await timers.arm(timer(n=3), at=in_(LATER), expecting=stale)
    pending = await timers.pending("monitor", "debounce", "web-1")
    assert (pending.payload, pending.revision) == ({"n": 2}, second)


async def test_of_many_who_expect_the_same_timer_one_replaces_it(timers):
    first = await timers.arm(timer(n=0), at=in_(LATER))
    rivals = (timers.arm(timer(n=n), at=in_(LATER), expecting=first) for n in range(1, 9))
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    (won,) = (each for each in outcomes if isinstance(each, int))
    assert sum(isinstance(each, TimerConflict) for each in outcomes) == 7
    assert (await timers.pending("monitor", "debounce", "web-1")).revision == won


async def test_a_timer_that_fired_is_expected_in_vain(timers):
    async with opened(timers.open("monitor")) as source:
        revision = await timers.arm(timer(n=1), at=in_(-LATER))
        await deliveries_of(source, 1)
        with pytest.raises(TimerConflict):
            await timers.arm(timer(n=2), at=in_(LATER), expecting=revision)
        assert await timers.pending("monitor", "debounce", "web-1") is None
        await timers.arm(timer(n=2), at=in_(LATER), expecting=0)


async def test_a_canceled_timer_is_not_pending_any_more(timers):
    await timers.arm(timer("canceled"), at=in_(LATER))
    await timers.arm(timer("kept"), at=in_(LATER))
    await timers.cancel("monitor", "debounce", "canceled")
    assert await timers.pending("monitor", "debounce", "canceled") is None
    assert await timers.pending("monitor", "debounce", "kept") is not None


async def test_canceling_what_is_not_pending_does_nothing(timers):
    await timers.arm(timer("kept"), at=in_(LATER))
    await timers.cancel("monitor", "debounce", "never-armed")
    assert await timers.pending("monitor", "debounce", "kept") is not None


async def test_exactly_the_timer_that_was_read_is_canceled(timers):
    first = await timers.arm(timer(n=1), at=in_(LATER))
    second = await timers.arm(timer(n=2), at=in_(LATER))
    await timers.cancel("monitor", "debounce", "web-1", expecting=first)
    assert (await timers.pending("monitor", "debounce", "web-1")).payload == {"n": 2}
    await timers.cancel("monitor", "debounce", "web-1", expecting=second)
    assert await timers.pending("monitor", "debounce", "web-1") is None
    await timers.cancel("monitor", "debounce", "web-1", expecting=second)


async def test_a_canceled_timer_can_be_armed_again(timers):
    revision = await timers.arm(timer(n=1), at=in_(LATER))
    await timers.cancel("monitor", "debounce", "web-1")
    with pytest.raises(TimerConflict):
        await timers.arm(timer(n=2), at=in_(LATER), expecting=revision)
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer(n=2), at=in_(SOON), expecting=0)
        assert payloads(await deliveries_of(source, 1)) == [{"n": 2}]


async def test_a_due_timer_comes_again_until_it_is_answered_for(timers):
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer(), at=in_(-LATER))
        counts, ids = [], set()
        for _ in range(3):
            (delivery,) = await deliveries_of(source, 1)
            counts.append(delivery.deliveries)
            ids.add(delivery.content.id)
            await delivery.nak()
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
        assert await nothing_comes(source)
    assert (counts, len(ids)) == ([1, 2, 3], 1)


async def test_a_timer_that_is_armed_while_an_earlier_one_is_answered_for_is_another_one(timers):
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer(n=1), at=in_(-LATER))
        (first,) = await deliveries_of(source, 1)
        await timers.arm(timer(n=2), at=in_(-LATER))
        (second,) = await deliveries_of(source, 1)
    assert payloads([first, second]) == [{"n": 1}, {"n": 2}]
    assert first.content.id != second.content.id


async def test_a_timer_that_is_sent_is_due_at_once_under_the_id_of_its_sender(timers):
    payload = {"host": "münchen-1", "n": 2**63}
    before = in_(timedelta(0))
    await timers.send(timer(**payload), id="fire:web-1 ü", trace="00-aa-bb-01")
    async with opened(timers.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
    content = delivery.content
    assert isinstance(content, Due)
    assert (content.id, content.purpose, content.key) == ("fire:web-1 ü", "debounce", "web-1")
    assert content.payload == payload
    assert before <= content.due_at <= in_(timedelta(0))
    assert content.due_at <= content.fired_at
    assert delivery.trace == "00-aa-bb-01"


async def test_a_timer_that_is_sent_twice_under_one_id_comes_once(timers):
    async with opened(timers.open("monitor")) as source:
        await timers.send(timer(n=1), id="a")
        await timers.send(timer(n=2), id="a")
        await timers.send(timer(n=3), id="b")
        deliveries = await deliveries_of(source, 2)
        for delivery in deliveries:
            await delivery.ack()
        await timers.send(timer(n=4), id="a")
        assert await nothing_comes(source)
    assert payloads(deliveries) == [{"n": 1}, {"n": 3}]


async def test_sending_a_timer_leaves_the_pending_one_of_its_name_alone(timers):
    revision = await timers.arm(timer(n=1), at=in_(LATER))
    await timers.send(timer(n=2), id="a")
    pending = await timers.pending("monitor", "debounce", "web-1")
    assert (pending.payload, pending.revision) == ({"n": 1}, revision)
    async with opened(timers.open("monitor")) as source:
        assert payloads(await deliveries_of(source, 1)) == [{"n": 2}]
        assert await nothing_comes(source)


async def test_a_timer_and_a_command_of_one_id_are_two(ports, timers):
    await timers.send(timer(), id="a")
    await ports.commands.send(start("e1"), id="a")
    async with (
        opened(timers.open("monitor")) as due,
        opened(ports.commands.open("monitor")) as told,
    ):
        assert len(await deliveries_of(due, 1)) == len(await deliveries_of(told, 1)) == 1


async def test_an_id_that_would_not_come_back_as_it_is_is_refused(timers):
    for id_ in ("", " a", "a ", "a\nb", "a\0", "\ud800", "x" * 513):
        with pytest.raises(BadName, match="id of a timer"):
            await timers.send(timer(), id=id_)
    async with opened(timers.open("monitor")) as source:
        assert await nothing_comes(source)


async def test_what_cannot_be_armed_cannot_be_sent(timers):
    itself = {}
    itself["itself"] = itself
    refused = [
        (timer(actor="a.b"), BadName),
        (timer(purpose="a.b"), BadName),
        (timer("x" * 1025), BadName),
        (timer(x="x" * TIMER_BYTES_MAX), TooLarge),
        (timer(x=print), TypeError),
        (timer(**itself), ValueError),
    ]
    for wrong, error in refused:
        with pytest.raises(error):
            await timers.send(wrong, id="a")
    async with opened(timers.open("monitor")) as source:
        await timers.send(timer("x" * 1024), id="a")
        assert keys(await deliveries_of(source, 1)) == ["x" * 1024]


async def test_two_nodes_share_the_queue_and_each_timer_is_handled_once(timers):
    names = [f"web-{n}" for n in range(20)]
    async with opened(timers.open("monitor")) as one, opened(timers.open("monitor")) as other:
        for name in names:
            await timers.arm(timer(name), at=in_(-LATER))
        seen = []
        async with asyncio.timeout(10 * SILENCE_S * len(names)):
            while len(seen) < len(names):
                for source in (one, other):
                    for delivery in await source.receive(room=3, wait_s=SILENCE_S):
                        seen.append(delivery.content.key)
                        await delivery.ack()
        for source in (one, other):
            assert await nothing_comes(source)
    assert sorted(seen) == sorted(names)


async def test_a_key_may_be_any_text(timers):
    texts = [
        "a.b",
        "*",
        ">",
        " ",
        "\n\r\0",
        "日本",
        "🜚",
        "=41",
        "é",
        "e\u0301",
        "x" * 1024,
        "ü" * 170,
    ]
    for key in texts:
        await timers.arm(timer(key, n=1), at=in_(LATER))
    for key in texts:
        assert (await timers.pending("monitor", "debounce", key)).payload == {"n": 1}
        await timers.arm(timer(key, said=key), at=in_(-LATER))
    async with opened(timers.open("monitor")) as source:
        deliveries = await deliveries_of(source, len(texts))
    assert sorted(keys(deliveries)) == sorted(texts)
    assert all(each.content.payload == {"said": each.content.key} for each in deliveries)


@pytest.mark.parametrize("key", ["", "\ud800", "x" * 1025, "ü" * 171])
async def test_a_key_that_is_no_text_or_too_long_is_refused(timers, key):
    with pytest.raises(BadName):
        await timers.arm(timer(key), at=in_(LATER))
    with pytest.raises(BadName):
        await timers.pending("monitor", "debounce", key)
    with pytest.raises(BadName):
        await timers.cancel("monitor", "debounce", key)


@pytest.mark.parametrize("bad", ["", "a.b", "*", "ü", "x" * 65])
async def test_an_actor_or_a_purpose_that_is_no_name_is_refused(timers, bad):
    with pytest.raises(BadName, match="actor"):
        await timers.arm(timer(actor=bad), at=in_(LATER))
    with pytest.raises(BadName, match="purpose"):
        await timers.arm(timer(purpose=bad), at=in_(LATER))
    with pytest.raises(BadName, match="actor"):
        await timers.open(bad)


@pytest.mark.parametrize("due_at", [datetime(2030, 1, 1), datetime.max.replace(tzinfo=UTC)])  # noqa: DTZ001 - it is what is refused
async def test_a_time_that_no_server_could_keep_is_refused(timers, due_at):
    with pytest.raises(ValueError, match="a timer due at"):
        await timers.arm(timer(), at=due_at)
    assert await timers.pending("monitor", "debounce", "web-1") is None


async def test_the_latest_time_is_kept(timers):
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer(), at=DUE_MAX)
        assert await nothing_comes(source)
    assert (await timers.pending("monitor", "debounce", "web-1")).due_at == DUE_MAX


async def test_a_timer_over_the_limit_is_refused(timers):
    with pytest.raises(TooLarge):
        await timers.arm(timer(x="x" * TIMER_BYTES_MAX), at=in_(LATER))
    assert await timers.pending("monitor", "debounce", "web-1") is None


async def test_a_timer_near_the_limit_fires(timers):
    large = "x" * (TIMER_BYTES_MAX - 500)
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer("x" * 100, x=large), at=in_(-LATER))
        assert payloads(await deliveries_of(source, 1)) == [{"x": large}]


async def test_a_thousand_timers_of_one_instant_all_fire(timers):
    names = [f"web-{n}" for n in range(MANY)]
    due_at = in_(2 * SOON)
    async with opened(timers.open("monitor")) as source:
        await asyncio.gather(*(timers.arm(timer(name), at=due_at) for name in names))
        deliveries = await deliveries_of(source, MANY)
    assert sorted(keys(deliveries)) == sorted(names)
    assert all(each.content.due_at == due_at for each in deliveries)


@pytest.mark.parametrize("data", [b"", b"what?", b'{"type":"timer@2"}', b'{"type":"\xff"}'])
async def test_what_is_no_timer_arrives_as_it_came(timers, stack, publish_raw, data):
    subject = stack.due("monitor", stack.partitions - 1)
    await publish_raw(subject, data, {"other": "kept"})
    async with opened(timers.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
    content = delivery.content
    assert isinstance(content, Unreadable)
    assert (content.reason, content.data, content.subject) == ("unreadable", data, subject)
    assert (content.stream, content.seq) == (stack.stream(Stream.WORK, stack.partitions - 1), 1)
    assert content.headers["other"] == "kept"


async def test_a_timer_from_a_stranger_is_named_by_its_place(timers, stack, publish_raw):
    said = (
        b'{"type":"timer@1","purpose":"p","key":"k","payload":{},"due_at":"2030-01-01T00:00:00Z"}'
    )
    await publish_raw(stack.due("monitor"), said, {})
    async with opened(timers.open("monitor")) as source:
        (delivery,) = await deliveries_of(source, 1)
    assert delivery.content.id == f"{stack.stream(Stream.WORK)}:1"


async def test_what_is_pending_and_was_written_by_no_engine_is_said_to_be(
    timers, stack, adapter, publish_raw
):
    if adapter == "memory":
        pytest.skip("a stranger to the memory cannot arm a timer")
    await publish_raw(stack.timer("monitor", "debounce", "web-1"), b"what?", {})
    with pytest.raises(UnreadableEvent):
        await timers.pending("monitor", "debounce", "web-1")
    await timers.arm(timer(n=1), at=in_(LATER))
    assert (await timers.pending("monitor", "debounce", "web-1")).payload == {"n": 1}


async def test_the_backlog_counts_what_is_due_and_unanswered_opened_or_not(timers):
    for n in range(6):
        await timers.send(timer(f"web-{n}"), id=f"{n}")
    await timers.send(timer("late"), id="late")
    await timers.arm(timer("later"), at=in_(LATER))
    await timers.send(timer(actor="other"), id="other")
    assert await timers.backlog("monitor") == 7  # Nobody has opened it yet.
    async with opened(timers.open("monitor")) as source:
        first, second, _ = await deliveries_of(source, 3)
        assert await timers.backlog("monitor") == 7
        await first.ack()
        await second.nak(delay_s=60)
        await wait_backlog(timers, 6)
    assert await timers.backlog("nobody") == 0


async def test_the_keys_of_what_is_pending_are_those_that_were_armed_and_have_not_fired(timers):
    texts = ["look/=", "look/a.b", "listen/münchen"]
    for key in texts:
        await timers.arm(timer(key), at=in_(LATER))
    await timers.arm(timer("look/canceled"), at=in_(LATER))
    await timers.cancel("monitor", "debounce", "look/canceled")
    await timers.arm(timer("look/other", purpose="tick"), at=in_(LATER))
    await timers.arm(timer("look/other", actor="other"), at=in_(LATER))
    async with opened(timers.open("monitor")) as source:
        await timers.arm(timer("look/fired"), at=in_(-LATER))
        await deliveries_of(source, 1)
    assert sorted(await timers.keys("monitor", "debounce")) == sorted(texts)
    assert list(await timers.keys("nobody", "debounce")) == []
