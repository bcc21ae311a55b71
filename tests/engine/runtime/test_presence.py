"""Who is there, and what they do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from engine.modes import NodeMode
from engine.runtime.presence import Roster, live_nodes
from streams.keys import mode_key, node_key
from tests.engine.runtime.stage import (
    CLOCK,
    WAIT_S,
    Scripted,
    app_of,
    doomed,
    eventually,
    running,
)


@asynccontextmanager
async def watching(ports):
    roster = Roster(ports.gates, CLOCK)
    task = asyncio.create_task(roster.serve())
    try:
        await asyncio.wait_for(roster.has_looked.wait(), WAIT_S)
        yield roster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def app():
    return app_of(Scripted(), most=3)


async def test_a_node_says_who_it_is_and_what_it_does(ports, app):
    async with watching(ports) as roster, running(app, ports, "n1"):
        await eventually(lambda: roster.capacity("worker"))
        (info,) = roster.nodes

    assert (info.name, info.mode, info.setting) == ("n1", NodeMode.FULL, NodeMode.FULL)
    assert info.lease_s == ports.leases.ttl_s
    actor = info.actors["worker"]
    assert (actor.wakes, actor.runs, actor.slots, actor.domain) == (True, True, 3, "default")
    assert actor.expectations["thing"].triggers == ("event thing.happened",)


async def test_a_node_that_stops_is_gone_at_once_and_one_that_dies_when_its_time_is_over(
    ports, app
):
    async with watching(ports) as roster:
        async with running(app, ports, "n1"):
            await eventually(lambda: roster.nodes)
        assert await ports.gates.get(node_key("n1")) is None
        await eventually(lambda: not roster.nodes)
        async with doomed(app, ports, "n2"):
            await eventually(lambda: roster.nodes)
        assert await ports.gates.get(node_key("n2")) is not None
        await eventually(lambda: not roster.nodes)


async def test_a_node_that_lives_is_there_for_longer_than_what_it_says_lasts(ports, app):
    said: list[bytes | None] = []
    async with ports.gates.watch() as watch, running(app, ports, "n1"), asyncio.timeout(WAIT_S):
        while len(said) < 3:
            said += [entry.value for entry in await watch.receive(most=1, wait_s=WAIT_S)]
    assert len(set(said)) == 1


async def test_only_nodes_that_run_an_actor_have_room_for_it(ports, app):
    async with watching(ports) as roster, running(app, ports, "n1"), running(app, ports, "n2"):
        await eventually(lambda: roster.capacity("worker") == 6)
        changes = asyncio.create_task(roster.wait_change())
        await ports.registry.put(mode_key("n2"), b'{"mode":"trigger_only"}')
        await asyncio.wait_for(changes, WAIT_S)
        await eventually(lambda: roster.capacity("worker") == 3)
        assert roster.capacity("another") == 0
        two = {info.name: info.actors["worker"] for info in roster.nodes}["n2"]
        assert (two.wakes, two.runs) == (True, False)


async def test_what_says_nothing_of_a_node_is_passed_over(ports, app):
    await ports.gates.put(node_key("strange"), b"nonsense")
    await ports.gates.put("cooldown.worker.thing.x", b"{}")
    async with watching(ports) as roster, running(app, ports, "n1"):
        await eventually(lambda: [info.name for info in roster.nodes] == ["n1"])
        assert [info.name for info in await live_nodes(ports.gates)] == ["n1"]
