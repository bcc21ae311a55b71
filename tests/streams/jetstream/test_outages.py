"""What holds while a server dies, freezes and comes back. Every test has its own server."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import pytest

from streams.errors import Unavailable, UnknownOutcome
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from tests.contracts.samples import commit, deliveries_of, next_of, start
from tests.streams.jetstream.wire import eventually

BACK_S_MAX: Final = 1.5
"""How soon after the server is back everything flows again: 0.2 s between two attempts to
connect, a request or two, and a machine that is busy with other tests."""

FAST_S_MAX: Final = 0.5
"""A failure that waits for no timeout."""


DOWN_S: Final = 0.3
"""How long a server stays away: long enough for every client to notice."""


async def crash(server):
    server.kill()
    await asyncio.sleep(DOWN_S)
    server.restart()


async def restart(server):
    server.stop()
    await asyncio.sleep(DOWN_S)
    server.restart()


OUTAGES: Final = [pytest.param(crash, id="killed"), pytest.param(restart, id="restarted")]


async def chain(log, subject, *, length):
    """Append `length` commits to one aggregate, and return the sequences acknowledged."""
    seqs, after = [], 0
    for number in range(length):
        after = await log.append(subject, commit(f"{subject}/{number}"), after=after)
        seqs.append(after)
    return seqs


async def test_acknowledged_commits_survive_two_kills_exactly_once(own_nats, ports, stack):
    subjects = [stack.episode(f"e{number}") for number in range(50)]
    chains = [asyncio.create_task(chain(ports.log, subject, length=20)) for subject in subjects]
    for threshold in (250, 600):
        await eventually(lambda least=threshold: reached(ports.log, least))
        await crash(own_nats)
    acknowledged = await asyncio.gather(*chains)
    for subject, seqs in zip(subjects, acknowledged, strict=True):
        records = await ports.log.read(subject)
        assert [r.seq for r in records] == seqs
        assert [r.commit.id for r in records] == [f"{subject}/{number}" for number in range(20)]
    assert await ports.log.head() == 1_000


async def reached(log, least):
    try:
        return await log.head() >= least
    except Unavailable:
        return False


async def test_an_append_to_a_frozen_server_is_stored_once_when_it_wakes(own_nats, stack):
    settings = LinkSettings(request_timeout_s=0.2, patience_s=20.0)
    async with connect(own_nats.url, stack=stack, settings=settings) as ports:
        own_nats.pause()
        appending = asyncio.create_task(
            ports.log.append(stack.episode("e1"), commit("c1"), after=0)
        )
        done, _ = await asyncio.wait([appending], timeout=1.0)
        assert not done
        own_nats.unpause()
        seq = await appending
        assert [r.seq for r in await ports.log.read(stack.episode("e1"))] == [seq]


async def test_a_request_in_flight_fails_as_soon_as_the_server_dies(own_nats):
    async with Link(own_nats.url, LinkSettings(request_timeout_s=30.0)) as link:
        own_nats.pause()
        asking = asyncio.create_task(link.request("$JS.API.INFO"))
        await asyncio.sleep(0)
        own_nats.kill()
        killed_s = time.monotonic()
        with pytest.raises(UnknownOutcome):
            await asking
        assert time.monotonic() - killed_s < FAST_S_MAX


async def test_a_request_to_a_frozen_server_times_out_in_time(own_nats):
    async with Link(own_nats.url, LinkSettings(request_timeout_s=0.3)) as link:
        own_nats.pause()
        asked_s = time.monotonic()
        with pytest.raises(UnknownOutcome):
            await link.request("$JS.API.INFO")
        assert 0.29 <= time.monotonic() - asked_s < 0.3 + FAST_S_MAX
        own_nats.unpause()
        assert (await link.ask("$JS.API.INFO")).data


async def test_an_append_without_a_server_is_unavailable_and_never_stored_later(own_nats, stack):
    settings = LinkSettings(patience_s=0.3, request_timeout_s=0.2)
    async with connect(own_nats.url, stack=stack, settings=settings) as ports:
        own_nats.kill()
        with pytest.raises(Unavailable) as caught:
            await give_up(ports.log, stack.episode("e1"))
        assert type(caught.value) is Unavailable
        own_nats.restart()
        await eventually(lambda: reached(ports.log, 0))
        assert list(await ports.log.read(stack.episode("e1"))) == []


async def give_up(log, subject):
    """Append until the loss of the connection is noticed; only then is nothing sent."""
    for number in range(3):
        try:
            await log.append(f"{subject}-{number}", commit("lost"), after=0)
        except UnknownOutcome:
            continue
    await log.append(subject, commit("c1"), after=0)


async def appended(log, subject) -> bool:
    """Append a commit; a server that has just started may be slower than its client is patient."""
    with suppress(UnknownOutcome):
        return await log.append(subject, commit("c"), after=0) > 0
    return False


async def test_many_appends_at_a_frozen_server_leave_no_connection_behind(own_nats, stack):
    settings = LinkSettings(request_timeout_s=0.2, patience_s=0.2)
    async with connect(own_nats.url, stack=stack, settings=settings) as ports:
        own_nats.pause()
        large = "x" * 500_000
        appends = [
            ports.log.append(stack.episode(f"e{n}"), commit("c", tool_name=large), after=0)
            for n in range(40)
        ]
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {UnknownOutcome}
        own_nats.kill()
        own_nats.restart()
        await eventually(lambda: appended(ports.log, stack.episode("next")))


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_follower_goes_on_without_gaps_or_repeats(own_nats, ports, stack, outage):
    subject = stack.episode("e1")
    async with ports.log.follow() as follower:
        first = await chain(ports.log, subject, length=3)
        seen = [r.seq for r in await next_of(follower, 3)]
        waiting = asyncio.create_task(next_of(follower, 1))
        await outage(own_nats)
        back_s = time.monotonic()
        fourth = await ports.log.append(subject, commit("c4"), after=first[-1])
        (record,) = await waiting
        assert time.monotonic() - back_s < BACK_S_MAX
        assert [*seen, record.seq] == [*first, fourth]


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_queue_goes_on_and_loses_nothing(own_nats, ports, outage):
    source = await ports.commands.open("monitor")
    await ports.commands.send(start("e1"), id="1")
    (first,) = await deliveries_of(source, 1)
    await first.ack()
    waiting = asyncio.create_task(until_delivered(source, start("e2")))
    await outage(own_nats)
    back_s = time.monotonic()
    await ports.commands.send(start("e2"), id="2")
    await waiting
    assert time.monotonic() - back_s < BACK_S_MAX
    await source.close()


async def until_delivered(source, command):
    """Acknowledge everything up to `command`: a kill forgets the newest acknowledgements."""
    while True:
        (delivery,) = await deliveries_of(source, 1)
        await delivery.ack()
        if delivery.content == command:
            return


@pytest.mark.parametrize("outage", OUTAGES)
async def test_an_event_watch_goes_on(own_nats, ports, outage):
    source = await ports.domain_events.open("monitor", ["disk.checked"])
    waiting = asyncio.create_task(deliveries_of(source, 1))
    await outage(own_nats)
    await ports.domain_events.publish("disk.checked", {"used": 0.9}, id="ev-1")
    (delivery,) = await waiting
    assert delivery.content.id == "ev-1"
    await source.close()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_lapse_during_an_outage_is_seen_after_it(own_nats, stack, outage):
    settings = LinkSettings(lease_ttl_s=1)
    async with (
        connect(own_nats.url, stack=stack, settings=settings) as ports,
        ports.leases.watch() as watch,
    ):
        lease = await ports.leases.acquire("episode.a.1", holder="n1")
        assert [c.state for c in await next_of(watch, 1)] == ["claimed"]
        await outage(own_nats)
        (expired,) = await next_of(watch, 1)
        assert (expired.key, expired.state) == (lease.key, "expired")


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_lease_outlives_a_restart(own_nats, ports, outage):
    lease = await ports.leases.acquire("episode.a.1", holder="n1")
    await outage(own_nats)
    assert await ports.leases.acquire("episode.a.1", holder="n2") is None
    assert (await ports.leases.renew(lease)).revision > lease.revision


async def test_a_registry_watch_goes_on(own_nats, ports):
    await ports.registry.put("mode.n1", b"full")
    async with ports.registry.watch() as watch:
        assert [e.value for e in await next_of(watch, 1)] == [b"full"]
        await crash(own_nats)
        await ports.registry.put("mode.n1", b"disabled")
        assert [e.value for e in await next_of(watch, 1)] == [b"disabled"]
