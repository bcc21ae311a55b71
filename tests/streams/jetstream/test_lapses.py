"""A lapse leaves the same marker, whoever writes it."""

from __future__ import annotations

from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection import headers
from streams.jetstream.ports.configs import MARKER_S
from streams.jetstream.ports.keys import has_lapsed, is_gone
from streams.ports.leases import GRACE_S
from tests.streams.jetstream.wire import eventually

LEASE_TTL_S = 1


async def test_a_marker_of_a_node_means_and_lasts_what_one_of_the_server_does(nats, stack):
    settings = LinkSettings(lease_ttl_s=LEASE_TTL_S)
    async with connect(nats.url, stack=stack, settings=settings) as ports:
        leases, keys = ports.leases, ports.leases._keys
        await leases.acquire("episode.monitor.left", holder="n1")
        over = await leases.acquire("episode.monitor.over", holder="n1")
        await leases.mark_lapsed(over.key, over.revision)

        async def has_ended():
            return has_lapsed(await keys.last("episode.monitor.left"))

        await eventually(has_ended)
        markers = [await keys.last(f"episode.monitor.{each}") for each in ("left", "over")]

    assert [has_lapsed(each) and is_gone(each) for each in markers] == [True, True]
    assert [each.headers[headers.MARKER_REASON] for each in markers] == ["MaxAge", "MaxAge"]
    assert [each.headers[headers.ROLLUP] for each in markers] == ["sub", "sub"]
    assert [seconds(each.headers[headers.TTL]) for each in markers] == [MARKER_S, MARKER_S]


async def test_the_server_leaves_those_who_watch_the_time_to_be_first(nats, stack):
    """Its marker names no revision: two at a time could end a claim that was made in between."""
    settings = LinkSettings(lease_ttl_s=LEASE_TTL_S)
    async with connect(nats.url, stack=stack, settings=settings) as ports:
        lease = await ports.leases.acquire("episode.monitor.left", holder="n1")
        stored = await ports.leases._keys.last(lease.key)
        assert seconds(stored.headers[headers.TTL]) == LEASE_TTL_S + GRACE_S
        assert (await ports.leases.standing(lease.key)).claim.life_s == LEASE_TTL_S


def seconds(text):
    """Return a time to live of a header in seconds: `90s`, or `24h0m0s` of the server."""
    units = {"h": 3600, "m": 60, "s": 1}
    total = number = 0
    for each in text:
        total, number = (
            (total + number * units[each], 0) if each in units else (total, number * 10 + int(each))
        )
    return total
