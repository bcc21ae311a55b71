"""What every `DomainEvents` promises to who reads its events without a queue."""

from __future__ import annotations

from datetime import UTC, datetime

from streams.ports.delivery import Unreadable
from streams.wire.messages import MESSAGE_ID_HEADER


async def ids(ports, **where):
    return [each.id for each in await ports.domain_events.page(**{"after": 0, **where})]


async def test_events_of_all_names_are_read_in_order(ports):
    for number, name in enumerate(("a", "b.c", "a")):
        await ports.domain_events.publish(name, {"n": number}, id=f"x{number}")

    page = await ports.domain_events.page(after=0)

    assert [(each.id, each.name, each.payload["n"]) for each in page] == [
        ("x0", "a", 0),
        ("x1", "b.c", 1),
        ("x2", "a", 2),
    ]
    assert await ids(ports, after=page[0].seq) == ["x1", "x2"]
    assert await ids(ports, after=page[-1].seq) == []


async def test_events_are_read_since_a_time(ports):
    await ports.domain_events.publish("a", {}, id="x1")
    await ports.domain_events.publish("a", {}, id="x2")
    first, second = await ports.domain_events.page(after=0)

    assert first.at < second.at
    assert await ids(ports, since=first.at) == ["x1", "x2"]
    assert await ids(ports, since=second.at) == ["x2"]
    assert await ids(ports, after=first.seq, since=first.at) == ["x2"]


async def test_since_a_time_that_no_stream_reaches_there_is_no_event(ports):
    await ports.domain_events.publish("a", {}, id="x1")
    assert await ids(ports, since=datetime(2300, 1, 1, tzinfo=UTC)) == []
    assert await ids(ports, since=datetime(1600, 1, 1, tzinfo=UTC)) == ["x1"]


async def test_of_no_events_there_is_no_page(ports):
    assert await ports.domain_events.page(after=0) == []


async def test_what_is_no_event_is_told_apart(ports, publish_raw, stack):
    await publish_raw(stack.event("a"), b"no JSON", {MESSAGE_ID_HEADER: "x1"})

    (page,) = [await ports.domain_events.page(after=0)]

    assert [type(each) for each in page] == [Unreadable]
