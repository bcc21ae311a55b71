"""What a client publishes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import nats as nats_py
import pytest

from streams import jetstream
from streams.clock import SystemClock
from streams.layout import Stream
from streams.memory.states import MemoryStates
from vigil import Actor, ConvergeResult, Strategy, converge, event, manual
from vigil.client import Client
from vigil.errors import EventsMissed, Mistake, ServerAway, Trouble


class Look(Strategy[None]):
    """Looks at nothing."""

    def init(self, *_):
        return None

    def next_step(self, *_):
        return converge()

    def converge(self, *_):
        return ConvergeResult()


async def events_of(ports):
    return [(each.id, each.name, each.payload) for each in await ports.domain_events.page(after=0)]


async def test_an_event_is_stored_once_however_often_it_is_published(ports, client):
    first = await client.publish("disk.measured", {"used": 0.97}, id="e1")
    again = await client.publish("disk.measured", {"used": 0.97}, id="e1")
    other = await client.events.publish("disk.measured", b'{"used": 1}')

    assert (first.id, first.seq, first.is_new) == ("e1", 1, True)
    assert (again.seq, again.is_new) == (1, False)
    assert (other.seq, other.is_new) == (2, True)
    assert await events_of(ports) == [
        ("e1", "disk.measured", {"used": 0.97}),
        (other.id, "disk.measured", {"used": 1}),
    ]


async def test_an_event_that_is_only_tried_is_looked_at_and_not_stored(ports, client):
    tried = await client.events.publish("disk.measured", {"used": 1}, id="e1", dry_run=True)
    with pytest.raises(Mistake):
        await client.events.publish("disk.measured", b"[]", dry_run=True)
    assert (tried.id, tried.seq, tried.is_new) == ("e1", 0, False)
    assert await events_of(ports) == []


async def test_an_event_that_the_engine_itself_publishes_is_told(client):
    forged = await client.publish("finding.raised", {"severity": "high"})
    own = await client.publish("finding.raise", {"severity": "high"})

    assert forged.of_engine == (
        "the engine publishes 'finding.raised' itself; who listens takes this for one of its own"
    )
    assert own.of_engine == ""


async def test_lines_are_published_until_the_first_that_no_engine_would_accept(ports, client):
    async def lines():
        for each in (b'{"n": 1}\n', b"\n", b'{"n": 3}\r\n', b"nonsense\n", b'{"n": 5}\n'):
            yield each

    with pytest.raises(Mistake, match=r"line 4: .*; the lines before it are published"):
        await client.events.publish_lines("x", lines(), id="l")
    assert [each[::2] for each in await events_of(ports)] == [("l-1", {"n": 1}), ("l-3", {"n": 3})]


@pytest.mark.parametrize("payload", [b"{", b"[1]", {"a": object()}, {"a": "x" * 524_288}])
async def test_what_no_engine_would_accept_is_a_mistake(ports, client, payload):
    with pytest.raises(Mistake, match=r"^x: "):
        await client.publish("x", payload)
    assert await events_of(ports) == []


async def test_a_client_of_servers_that_are_away_says_so_when_it_is_used():
    nowhere = {
        "nats_url": "nats://127.0.0.1:1",
        "postgres_dsn": "postgresql://127.0.0.1:1/nothing",
    }
    async with Client(**nowhere) as client:
        with pytest.raises(ServerAway) as raised:
            await client.findings.list()
        assert "`vigil doctor` shows which are looked for" in raised.value.remedy
        with pytest.raises(ServerAway, match="Postgres at"):
            await client.findings.get("disk")


def test_a_setting_that_cannot_work_is_a_mistake_at_once():
    with pytest.raises(Mistake, match=r"^stack: "):
        Client(stack="no.such stack")


async def test_a_client_without_rows_has_none_to_ask(ports):
    async with Client.on(ports, by="ann") as client:
        with pytest.raises(Trouble, match="no rows to ask"):
            await client.findings.list()


async def test_an_event_that_nobody_has_published_has_no_verdict(client):
    found = await client.events.why("nothing")
    assert (found.name, [*found.verdicts]) == ("", [])
    assert found.why_none


async def test_events_are_followed_from_the_oldest_from_a_place_and_from_a_time(client):
    for number in range(1, 4):
        await client.publish("disk.measured", {"n": number}, id=f"e{number}")
    tail = client.events.tail
    (first, *_) = [each async for each in tail(after=0, idle_s=0)]

    assert [each.id async for each in tail(after=0, idle_s=0)] == ["e1", "e2", "e3"]
    assert [each.id async for each in tail(after=2, idle_s=0)] == ["e3"]
    assert [each.id async for each in tail(after=3, idle_s=0)] == []
    assert [each.id async for each in tail(since=first.at, idle_s=0)] == ["e1", "e2", "e3"]
    assert [each.id async for each in tail(idle_s=0)] == []


@pytest.mark.parametrize(
    ("names", "where", "said"),
    [
        ((), {"since": datetime(2300, 1, 1, tzinfo=UTC)}, "is past 2200-01-01, the latest"),
        ((), {"after": 1, "since": datetime.now(UTC)}, "not both"),
        ((), {"after": -1}, "is no sequence"),
        ((), {"after": "7"}, "after: '7' is no sequence, a whole number"),
        ((), {"idle_s": "7"}, "idle_s: '7' is not a number of seconds"),
        ((), {"since": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is it
        (("disk..full",), {}, "disk"),
        (("di*k",), {}, "di"),
    ],
)
async def test_what_cannot_be_followed_is_a_mistake(client, names, where, said):
    with pytest.raises(Mistake, match=said):
        await anext(client.events.tail(*names, **where))


async def test_an_event_that_comes_later_is_yielded_then_and_only_those_asked_for(client):
    events = client.events.tail("disk.*", "net.>", idle_s=30)
    first = asyncio.create_task(anext(events))
    while not first.done():  # Whoever follows from now on has begun by one of these.
        await client.publish("cpu.measured", {})
        await client.publish("disk.measured", {"n": 1})
        await asyncio.wait([first], timeout=0.1)
    await client.publish("disk.measured.twice", {})
    await client.publish("net.link.down", {})
    names = [first.result().name]
    while "net.link.down" not in names:
        names.append((await anext(events)).name)
    await events.aclose()
    assert set(names) == {"disk.measured", "net.link.down"}


async def test_a_follower_ends_with_its_client(ports):
    async with Client.on(ports, by="ann") as client:
        await client.publish("disk.measured", {}, id="e1")
        events = client.events.tail(after=0)
        assert (await anext(events)).id == "e1"
    with pytest.raises(Mistake, match="this client is closed"):
        await anext(events)


async def test_events_cannot_be_followed_from_where_there_is_no_such_place(client):
    await client.publish("disk.measured", {})
    with pytest.raises(Trouble, match="the stream of events ends at 1, before 7"):
        await anext(client.events.tail(after=7, idle_s=0))
    with pytest.raises(Mistake, match="say after or since, not both"):
        await anext(client.events.tail(after=1, since=SystemClock().now()))


@pytest.fixture
def removes_all(request, ports):
    """Removes all events, as their age does."""

    async def remove() -> None:
        if isinstance(ports.states, MemoryStates):
            ports.states.stream("events").purge()
            return
        await purged(request.getfixturevalue("nats").url, ports.stack.stream(Stream.EVENTS))

    return remove


async def purged(url: str, stream: str, *, but_delete: int = 0) -> None:
    """Remove all messages of a stream, or but one."""
    nats = await nats_py.connect(url)
    if but_delete:
        await nats.jetstream().delete_msg(stream, but_delete)
    else:
        await nats.jetstream().purge_stream(stream)
    await nats.close()


async def test_whoever_follows_is_told_of_events_that_were_removed_before_it_came(
    client, removes_all
):
    for number in range(1, 4):
        await client.publish("disk.measured", {}, id=f"e{number}")
    events = client.events.tail(after=0)
    assert (await anext(events)).id == "e1"  # It has a page in hand, and reads that.
    await removes_all()
    with pytest.raises(EventsMissed, match="events 2 to 3 are no longer kept") as raised:
        await anext(client.events.tail(after=1, idle_s=0))
    await client.publish("disk.measured", {}, id="e4")
    assert [(await anext(events)).id for _ in range(3)] == ["e2", "e3", "e4"]
    with pytest.raises(EventsMissed, match="go on with after=3"):
        await anext(client.events.tail(after=1))

    assert (raised.value.first_seq, raised.value.last_seq) == (2, 3)
    after = raised.value.last_seq
    assert [each.id async for each in client.events.tail(after=after, idle_s=0)] == ["e4"]
    assert [each.id async for each in client.events.tail(after=0, idle_s=0)] == ["e4"]


async def test_a_single_event_that_was_removed_is_told_of_too(nats, stack, request):
    async with jetstream.connect(nats.url, stack=stack) as ports:
        client = Client.on(ports, by="ann")
        for number in range(1, 5):
            await client.publish("disk.measured", {}, id=f"e{number}")
        await purged(nats.url, stack.stream(Stream.EVENTS), but_delete=3)
        events = client.events.tail(after=0)
        assert [(await anext(events)).id for _ in range(2)] == ["e1", "e2"]
        with pytest.raises(EventsMissed, match="events 3 to 3 are no longer kept"):
            await anext(events)


class BusyClock(SystemClock):
    """Whenever somebody waits, events of another name are published, and a second passes."""

    def __init__(self, ports) -> None:
        self.ports, self.waits = ports, 0

    def monotonic_s(self) -> float:
        return float(self.waits)

    async def sleep(self, seconds: float) -> None:
        self.waits += 1
        assert self.waits < 20, "it goes on for ever"
        await self.ports.domain_events.publish("cpu.measured", {}, id=f"c{self.waits}")


async def test_events_of_other_names_do_not_keep_a_follower_that_is_idle(ports):
    async with Client.on(ports, by="ann", clock=BusyClock(ports)) as client:
        await client.publish("disk.measured", {}, id="e1")
        events = client.events.tail("disk.*", after=0, idle_s=5)
        assert [each.id async for each in events] == ["e1"]
        assert client.connections.clock.waits == 5


async def test_rules_are_tried_on_the_events_that_are_kept(client):
    since = SystemClock().now()
    await client.publish("disk.measured", {"used": 1}, id="e1")
    await client.publish("cpu.measured", {}, id="e2")
    watch = Actor("watch")
    watch.expect("disk_has_room", Look, on=event("disk.measured"))
    found = await client.events.would(watch, since=since - timedelta(minutes=1))
    assert (found.events, found.is_whole) == (2, True)
    assert [(each.event_id, each.ruling) for each in found.replay.kept] == [("e1", "fire")]

    by_hand = Actor("by_hand")
    by_hand.expect("look", Look, on=manual())
    with pytest.raises(Mistake, match="no expectation in it is fired by events"):
        await client.events.would(by_hand, since=since)
    with pytest.raises(Mistake, match="is past 2200-01-01"):
        await client.events.would(watch, since=datetime(2300, 1, 1, tzinfo=UTC))


async def test_the_latest_events_are_those_that_were_published_last(ports, client):
    for number in range(3):
        await client.publish("page.seen", {"n": number}, id=f"e-{number}")
    await client.publish("finding.raised", {}, id="of-the-engine")

    found = await client.events.latest(limit=2)

    assert [(each.id, each.name) for each in found] == [("e-2", "page.seen"), ("e-1", "page.seen")]


@pytest.mark.parametrize("limit", [0, 501])
async def test_there_is_a_limit_to_the_latest_events(client, limit):
    with pytest.raises(Mistake, match="limit"):
        await client.events.latest(limit=limit)
