"""What waits, rests and ticks does so without nodes: all of them are killed, others are started.

What is asserted of times compares the clock of the machine, which all processes share, with the
journal. Nothing is opened before it is due. An episode is opened at most `LATE_S_MAX` after it is
due and a node is up, whichever is later: a machine that is slow to start a node only makes the node
late. What a tick says of its time is exact, however late it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import nats
import pytest
import pytest_asyncio

from streams.jetstream import connect
from streams.layout import Kind
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.acceptance.agreement import journal
from tests.acceptance.cluster import POLL_S, Cluster
from tests.acceptance.gated import CALM_S, ORDERS, REST_S, SHORT_S
from tests.contracts import samples
from tests.size import size

pytestmark = pytest.mark.nightly

GATED: Final = "tests.acceptance.gated:app"
AUDIT: Final = "tests.acceptance.gated:audit"

LATE_S_MAX: Final = 1.5
"""Longest from when an episode is due and a node is up until it is open, in seconds."""

CLOCK_S: Final = 0.01
"""More than the machine's two clocks differ in a minute."""

WAIT_S_MAX: Final = 30.0
TICK: Final = timedelta(seconds=2)
HISTORIC: Final = size("historic", short=2_000, full=5_000)
MIDDLE: Final = HISTORIC // 5
LIVE: Final = 20


class Opened(NamedTuple):
    """An episode that was opened, and when."""

    at: datetime
    event: EpisodeOpened
    ends: int


async def opened(cluster: Cluster, expectation: str) -> list[Opened]:
    """Return the episodes of an expectation, in the order in which they were opened."""
    found = []
    for (kind, _), records in (await journal(cluster.nats_url)).items():
        first = records[0].commit.events[0]
        if kind is Kind.EPISODE and isinstance(first, EpisodeOpened):
            events = [event for record in records for event in record.commit.events]
            ends = sum(isinstance(event, EpisodeFinished) for event in events)
            found.append((records[0].seq, Opened(records[0].commit.at, first, ends)))
    return [each for _, each in sorted(found) if each.event.expectation_id == expectation]


async def wait_opened(
    cluster: Cluster, expectation: str, holds: Callable[[Sequence[Opened]], bool]
) -> list[Opened]:
    """Wait until what has been opened of an expectation is as wanted, and return it."""
    found: list[Opened] = []
    for _ in range(int(WAIT_S_MAX / POLL_S)):
        found = await opened(cluster, expectation)
        if holds(found):
            return found
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"{expectation}: {found}")


async def wait_until(at: datetime) -> None:
    """Wait until the clock of the machine shows `at`: time itself is what this is about."""
    await asyncio.sleep((at - datetime.now(UTC)).total_seconds() + CLOCK_S)


async def start_nodes(cluster: Cluster, *names: str, app: str = GATED, **env: str) -> datetime:
    """Start nodes at the same time, wait until all are up, and return when the first was."""
    nodes = [cluster.launch(name, app=app, **env) for name in names]
    for _ in range(int(WAIT_S_MAX / POLL_S)):
        if all(node.is_up() for node in nodes):
            break
        await asyncio.sleep(POLL_S)
    ups = [line for node in nodes for line in node.events() if line["event"] == "node up"]
    assert len(ups) == len(nodes), "all nodes are up"
    return min(datetime.fromisoformat(line["timestamp"]) for line in ups)


async def kill_all(cluster: Cluster) -> datetime:
    """Kill all nodes between two ticks, and return when they were dead.

    What a node holds unanswered when it dies comes again after 10 s only, and so would be late.
    """
    now = datetime.now(UTC).timestamp()
    await wait_until(datetime.fromtimestamp(now // 2 * 2 + 3, UTC))
    for node in cluster.nodes:
        node.kill()
    return datetime.now(UTC)


@asynccontextmanager
async def looking(cluster: Cluster) -> AsyncIterator[Ports]:
    async with connect(cluster.nats_url, stack=Stack()) as ports:
        yield ports


async def wait_armed(ports: Ports, key: str, event_id: str) -> None:
    """Wait until the timer for calm `key` holds the event."""
    for _ in range(int(WAIT_S_MAX / POLL_S)):
        pending = await ports.timers.pending("porter", "debounce", key)
        if pending is not None and pending.payload["event"]["id"] == event_id:
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"{key} does not hold {event_id}")


async def stored_at(ports: Ports, event_name: str, id_: str) -> datetime:
    """Return when the server stored an event."""
    async with (
        asyncio.timeout(WAIT_S_MAX),
        samples.opened(ports.domain_events.open(f"test-{id_}", [event_name], after=0)) as source,
    ):
        while True:
            for each in await source.receive(room=1_000, wait_s=1.0):
                await each.ack()
                if each.content.id == id_:
                    return each.at


def in_time(each: Opened, due: datetime, up: datetime) -> bool:
    """Return whether an episode was opened when it was due and a node was up, and soon."""
    latest = max(due, up) + timedelta(seconds=LATE_S_MAX)
    return due <= each.at <= latest


def ids(found: Sequence[Opened]) -> list[str]:
    return [each.event.trigger.event_id for each in found]


def ticks(found: Sequence[Opened]) -> list[datetime]:
    return [each.event.trigger.scheduled_at for each in found]


class Outage(NamedTuple):
    """A cluster whose nodes have all been killed."""

    cluster: Cluster
    died: datetime
    calm_at: datetime
    """When calm is over that was waited for when they died."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def outage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outage]:
    """An outage that lasts while the other tests run: up to a minute must pass anyway."""
    async with Cluster(tmp_path_factory.mktemp("outage")) as cluster:
        await start_nodes(cluster, "n1", "n2")
        await cluster.publish("horn.blown", {"h1": {}})
        await wait_opened(cluster, "briefly", lambda found: ids(found) == ["h1"])
        await wait_opened(cluster, "every_tick", lambda found: len(found) >= 2)
        async with looking(cluster) as ports:
            await cluster.publish("gate.opened", {"g1": {}})
            await wait_armed(ports, "soon/=", "g1")
            calm_at = await stored_at(ports, "gate.opened", "g1") + timedelta(seconds=SHORT_S)
        yield Outage(cluster, await kill_all(cluster), calm_at)


@pytest.mark.timeout(180)
async def test_a_short_outage_of_all_nodes_changes_nothing(cluster: Cluster):
    """Killed while calm is waited for, during a cooldown, and between ticks; back before calm."""
    await start_nodes(cluster, "n1", "n2")
    await cluster.publish("bell.rung", {"b1": {"door": "front"}})
    (first_ring,) = await wait_opened(cluster, "rested", lambda found: len(found) == 1)
    await wait_opened(cluster, "every_tick", lambda found: len(found) >= 2)
    async with looking(cluster) as ports:
        await cluster.publish("door.opened", {"d1": {"door": "front"}})
        await wait_armed(ports, "calm/front", "d1")
        await cluster.publish("door.opened", {"d2": {"door": "front"}})
        await wait_armed(ports, "calm/front", "d2")
        died = await kill_all(cluster)
        await cluster.publish("bell.rung", {"b2": {"door": "front"}, "b3": {"door": "back"}})
        up = await start_nodes(cluster, "n3", "n4")
        calm_at = await stored_at(ports, "door.opened", "d2") + timedelta(seconds=CALM_S)

    (calmed,) = await wait_opened(cluster, "calm", lambda found: len(found) == 1)
    assert in_time(calmed, calm_at, up)
    assert (calmed.event.trigger.event_id, calmed.event.trigger.coalesced) == ("d2", 1)

    rings = await wait_opened(cluster, "rested", lambda found: len(found) == 2)
    assert ids(rings) == ["b1", "b3"]
    await wait_until(first_ring.at + timedelta(seconds=REST_S + 0.5))
    await cluster.publish("bell.rung", {"b4": {"door": "front"}})
    rings = await wait_opened(cluster, "rested", lambda found: len(found) == 3)
    assert ids(rings) == ["b1", "b3", "b4"]

    await expect_every_tick(cluster, died, up)
    assert [node.stop() for node in cluster.nodes[2:]] == [0, 0]
    await expect_all_ended(cluster)


@pytest.mark.timeout(180)
async def test_a_stream_that_is_there_is_run_through_from_the_beginning_once(cluster: Cluster):
    client = await nats.connect(cluster.nats_url)
    stream = client.jetstream()
    await stream.add_stream(name=ORDERS, subjects=["orders.>"])
    await offer(stream, range(HISTORIC))

    await start_nodes(cluster, "n1", "n2", app=AUDIT, VIGIL_LEASE_S="5")
    async with looking(cluster) as ports:
        await wait_head(ports, MIDDLE)
        cluster.nodes[0].kill()  # What it held comes again, to the other.
        assert await ports.log.head() < HISTORIC
    await offer(stream, range(HISTORIC, HISTORIC + LIVE))
    done = "select 1 from episodes where status = 'done'"
    await cluster.wait_rows(done, HISTORIC + LIVE, most_s=120)

    found = await opened(cluster, "order")
    assert Counter(ids(found)) == Counter(f"{ORDERS}:{1 + n}" for n in range(HISTORIC + LIVE))
    assert {each.event.trigger.payload["n"] for each in found} == set(range(HISTORIC + LIVE))
    assert {each.event.trigger.stream for each in found} == {ORDERS}
    assert (await stream.stream_info(ORDERS)).state.messages == HISTORIC + LIVE
    await expect_all_ended(cluster)
    await client.close()
    assert cluster.nodes[1].stop() == 0


@pytest.mark.timeout(240)
async def test_a_long_outage_of_all_nodes_is_caught_up_with(outage: Outage):
    """Killed before a full minute and started after it: calm, rest and ticks were due meanwhile."""
    cluster, died, calm_at = outage
    minute = died.replace(second=0, microsecond=0) + timedelta(minutes=1)
    await wait_until(max(minute, died + timedelta(seconds=3 * SHORT_S)) + timedelta(seconds=1))
    await cluster.publish("horn.blown", {"h2": {}})
    up = await start_nodes(cluster, "n3", "n4")

    (calmed,) = await wait_opened(cluster, "soon", lambda found: len(found) == 1)
    assert in_time(calmed, calm_at, up)
    assert calmed.event.trigger.event_id == "g1"
    await wait_opened(cluster, "briefly", lambda found: ids(found) == ["h1", "h2"])

    minutes = await wait_opened(cluster, "minutes", lambda found: ticks(found)[-1:] >= [minute])
    expect_gapless(minutes, timedelta(minutes=1))
    caught = next(each for each in minutes if each.event.trigger.scheduled_at == minute)
    assert in_time(caught, minute, up)
    assert caught.at > died

    missed = [tick for tick in await expect_every_tick(cluster, died, up) if died < tick < up]
    assert len(missed) > 1, "every tick that nobody was there for is made up for"
    await expect_newest_tick(cluster, died, up)
    assert [node.stop() for node in cluster.nodes[2:]] == [0, 0]
    await expect_all_ended(cluster)


async def wait_head(ports: Ports, seq: int) -> None:
    """Wait until the journal has come as far as `seq`."""
    async with asyncio.timeout(WAIT_S_MAX), ports.log.follow() as follower:
        reached = 0
        while reached < seq:
            reached = max([reached, *(r.seq for r in await follower.receive(most=500, wait_s=1.0))])


async def offer(stream: nats.js.JetStreamContext, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, 200):
        batch = range(first, min(first + 200, numbers.stop))
        payloads = [b'{"n":%d}' % number for number in batch]
        await asyncio.gather(*(stream.publish("orders.eu.placed", each) for each in payloads))


async def expect_every_tick(cluster: Cluster, died: datetime, up: datetime) -> list[datetime]:
    """Assert that each tick was opened once and in time; return all of them.

    They are opened in order, but that those which were missed are all opened at the same time.
    """
    found = await ticked(cluster, "every_tick", past=up)
    expect_gapless(found, TICK)
    since = [each for each in found if each.at > died]
    due = [max(tick, up) if died < tick else tick for tick in ticks(found)]
    assert due == sorted(due)
    assert all(in_time(each, each.event.trigger.scheduled_at, up) for each in since)
    return ticks(found)


async def expect_newest_tick(cluster: Cluster, died: datetime, up: datetime) -> None:
    """Assert the same, but that of the ticks that were due meanwhile only the newest was opened.

    Which one that is is found out soon after a node is up: another may have come due since.
    """
    found = await ticked(cluster, "newest_tick", past=up)
    since = [each for each in found if each.at > died]
    expect_gapless(since, TICK)
    assert ticks(found) == sorted(ticks(found))
    assert up - TICK < ticks(since)[0] < up + timedelta(seconds=LATE_S_MAX)
    assert all(in_time(each, each.event.trigger.scheduled_at, up) for each in since)


async def ticked(cluster: Cluster, expectation: str, *, past: datetime) -> list[Opened]:
    """Wait until a schedule has ticked a few times more, and return all of its episodes."""
    return await wait_opened(
        cluster, expectation, lambda found: bool(found) and ticks(found)[-1] > past + 2 * TICK
    )


def expect_gapless(found: Sequence[Opened], step: timedelta) -> None:
    """Assert that each tick was opened once, and none is missing between the first and the last."""
    at = sorted(ticks(found))
    assert at == [at[0] + n * step for n in range(len(at))]


async def expect_all_ended(cluster: Cluster) -> None:
    """Assert that every episode of every expectation has one end."""
    names = ("calm", "soon", "rested", "briefly", "every_tick", "newest_tick", "minutes", "order")
    for name in names:
        assert {each.ends for each in await opened(cluster, name)} <= {1}
