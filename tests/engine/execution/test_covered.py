"""Whom a call for recovery is about, where the lease of a node stands for an attempt."""

from __future__ import annotations

from msgspec.structs import replace

from streams.keys import node_claim
from streams.memory import memory_ports
from streams.model.commands import Recover
from streams.model.events import EpisodeStarted
from tests.engine.stage import STARTED, Counter, Scripted, app_of, life, opening, running, write
from tests.simulation.time import SimClock, simulate
from vigil import tool_call

SEEN = 7
"""The newest revision of any claim that the node of the attempt knew as it began."""


async def called(lapse_revision: int, *, holder: str = "", lasts_s: int = 60) -> list[str]:
    """Return the nodes that had an episode a minute after a call for it.

    Another node began it, and its lease lasts for `lasts_s`. The claim that lapsed was `holder`'s.
    """
    clock = SimClock()
    ports = memory_ports(clock=clock)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": Counter()})
    id_ = opening(app).episode_id
    lease = await ports.leases.acquire(node_claim("other"), holder="other")
    started = replace(
        STARTED, node="other", claim_revision=SEEN, node_lease_since=lease.acquired_at
    )
    await write(ports, id_, opening(app))
    await write(ports, id_, started)
    recover = Recover(
        actor_id="worker",
        episode_id=id_,
        reason="lapsed",
        lapse_revision=lapse_revision,
        holder=holder,
    )
    await ports.commands.send(recover, id="lapse")
    async with running(app, ports, clock=clock):
        for _ in range(lasts_s):
            lease = await ports.leases.renew(lease)
            await clock.sleep(1.0)
        await ports.leases.complete(lease)
        await clock.sleep(60.0 - lasts_s)
        return [each.node for each in (await life(ports, id_)).of(EpisodeStarted)]


def test_a_claim_that_lapsed_before_an_attempt_began_calls_nobody_to_it():
    """That was of an attempt whose start never came: a node may have died before it was durable."""
    assert simulate(called(SEEN)) == ["other"]


def test_a_claim_that_lapsed_since_calls_a_node():
    assert simulate(called(SEEN + 1)) == ["other", "n1"]


def test_a_claim_of_the_node_that_began_it_calls_another_one():
    assert simulate(called(SEEN + 1, holder="other")) == ["other", "n1"]


def test_a_claim_of_a_third_node_calls_nobody_while_the_lease_lasts():
    """Whoever began the episode had not heard of that claim, which never came to anything."""
    assert simulate(called(SEEN + 1, holder="third")) == ["other"]
    assert simulate(called(SEEN + 1, holder="third", lasts_s=20)) == ["other", "n1"]


def test_who_sees_that_the_lease_is_over_calls_a_node():
    assert simulate(called(0)) == ["other", "n1"]


def test_once_the_lease_is_over_every_call_is_followed():
    assert simulate(called(SEEN, lasts_s=20)) == ["other", "n1"]
