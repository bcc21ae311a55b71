"""Every node ends what nobody renews any more; the server would be much later here."""

from __future__ import annotations

import pytest

from engine.app.actions import observe
from engine.cluster.members import presence_s
from engine.cluster.nodes import NodeInfo, encoded
from streams.keys import node_key
from streams.memory import memory_ports
from streams.model.modes import NodeMode
from streams.ports.bucket import BucketEntry
from tests.engine.stage import CLOCK, LEASE_TTL_S, Scripted, app_of, eventually, running

SERVER_S = 3_600
"""After how long the server ends what is over."""

DEAD = node_key("dead")


@pytest.fixture
def app():
    return app_of(Scripted(observe("end")))


def said(*, lease_s):
    """Return what a node says of itself."""
    return encoded(
        NodeInfo(
            name="dead",
            host="host",
            pid=1,
            since=CLOCK.now(),
            mode=NodeMode.FULL,
            setting=NodeMode.FULL,
            lease_s=lease_s,
        )
    )


async def test_a_claim_ends(app):
    ports = memory_ports(clock=CLOCK, lease_ttl_s=LEASE_TTL_S, lapse_late_s=SERVER_S)
    key = "episode.of_others.e1"

    async def has_lapsed():
        standing = await ports.leases.standing(key)
        return standing is not None and standing.state == "expired"

    async with running(app, ports):
        await ports.leases.acquire(key, holder="dead")
        await eventually(has_lapsed)


async def test_the_presence_of_a_node_ends(app, ports):
    async def is_gone():
        return await ports.gates.get(DEAD) is None

    async with running(app, ports):
        await ports.gates.put(DEAD, said(lease_s=LEASE_TTL_S), ttl_s=SERVER_S)
        await eventually(is_gone)


@pytest.mark.parametrize(("lease_s", "lasts_s"), [(0.5, 2), (2, 2), (2.1, 3), (30, 30)])
def test_a_presence_lasts_as_long_as_a_lease_but_two_seconds_at_least(lease_s, lasts_s):
    entry = BucketEntry(key=DEAD, value=said(lease_s=lease_s), revision=1)
    assert presence_s(entry) == lasts_s


@pytest.mark.parametrize("value", [None, b"of another version"])
def test_what_is_gone_or_cannot_be_read_is_left_to_the_server(value):
    assert presence_s(BucketEntry(key=DEAD, value=value, revision=1)) is None
