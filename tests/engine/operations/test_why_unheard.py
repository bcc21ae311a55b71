"""What a program is told that asks whether anybody rules on what it says. In simulated time."""

from __future__ import annotations

import pytest

from engine.app.actions import approval
from engine.app.outputs import propose_output
from engine.episodes.fire import fire
from engine.errors import BadRequest, Refused
from engine.operations.events.why_unheard import why_output_unheard, why_unheard
from engine.outputs.keys import proposal
from streams.memory import MemoryPorts, memory_ports
from streams.model.events import EndStatus
from streams.ports.log import START, Commit
from tests.engine.defining import agent, app_with, apply, runs, says
from tests.engine.stage import (
    CLOCK,
    LEASE_TTL_S,
    Scripted,
    app_of,
    blocked,
    decide,
    lived,
    open_episode,
    opening,
    running,
)
from tests.simulation.time import SimClock, simulate

APP = app_of(Scripted())
NOBODY = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


def asking(config):
    return Scripted(approval({"restart": "db1"}))


def node(ports: MemoryPorts, name: str, **templates):
    return running(app_with(templates=templates), ports, name, clock=SimClock())


async def asked(ports: MemoryPorts) -> str:
    """Return the id of an episode that asks people, once its node is gone."""
    by_hand = {"by_hand": {"strategy": {"template": "asking"}, "on": {"manual": True}}}
    async with node(ports, "able", asking=asking):
        await apply(ports, agent(template="asking", expectations=by_hand))
        await says(ports, runs(1), "able")
        id_ = await fire(ports, "worker", "by_hand", by="ada")
        await blocked(ports, id_)
    return id_


def test_an_answer_that_no_node_can_rule_on_is_told_why_and_ruled_on_by_one_that_can():
    async def play():
        ports = memory_ports(clock=SimClock(), lease_ttl_s=LEASE_TTL_S)
        id_ = await asked(ports)
        told = [await why_unheard(ports, id_)]
        await decide(ports, id_)
        async with node(ports, "poor"):
            await says(ports, lambda info: "worker" in info.closed, "poor")
            told.append(await why_unheard(ports, id_))
            async with node(ports, "able", asking=asking):
                await says(ports, runs(1), "able")
                told.append(await why_unheard(ports, id_))
                return told, (await lived(ports, id_)).end.status

    (nobody, poor, able), status = simulate(play())
    assert "(none is up at all)" in nobody.why
    assert "revision 1 of actor 'worker' (poor: " in poor.why
    assert "'asking'" in poor.why
    assert (poor.is_certain, poor.is_tried) == (True, True)
    assert able is None
    assert status is EndStatus.DONE


async def test_an_output_is_as_little_heard_of_as_its_episode(ports):
    id_ = await open_episode(ports, APP)
    wanted, now = propose_output("pager", {}, dedupe_key="disk"), CLOCK.now()
    put_down = proposal(wanted, "disk", opening(APP), proposal_no=1, at=now)
    commit = Commit(id="p", at=now, events=(put_down,))
    await ports.log.append(ports.stack.output("disk"), commit, after=START)
    assert await why_output_unheard(ports, "disk") == await why_unheard(ports, id_)
    assert "actor 'worker' with expectation 'thing'" in str(await why_unheard(ports, id_))


async def test_what_is_not_there_is_refused(ports):
    with pytest.raises(BadRequest, match="episode_id"):
        await why_unheard(ports, "x")
    with pytest.raises(Refused, match="no such episode"):
        await why_unheard(ports, NOBODY)
    with pytest.raises(Refused, match="no such output"):
        await why_output_unheard(ports, "disk")
