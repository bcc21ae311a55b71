"""Who is there, and what they do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from structlog.testing import capture_logs

from engine.cluster.members import TWO_OF_A_NAME, Membership, end_presence, live_nodes, succeed
from streams.keys import NODES, mode_key, node_claim, node_key
from streams.model.modes import NodeMode
from tests.engine.stage import CLOCK, WAIT_S, Scripted, app_of, doomed, eventually, running


@asynccontextmanager
async def watching(ports):
    members = Membership(ports.gates, CLOCK)
    task = asyncio.create_task(members.follow())
    try:
        await asyncio.wait_for(members.has_looked.wait(), WAIT_S)
        yield members
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def app():
    return app_of(Scripted(), most=3)


@pytest.fixture
def later():
    """The same app on a node with more room: so one can tell which of two nodes is seen."""
    return app_of(Scripted(), most=7)


async def test_a_node_says_who_it_is_and_what_it_does(ports, app):
    async with watching(ports) as members, running(app, ports, "n1"):
        await eventually(lambda: members.capacity("worker"))
        (info,) = members.nodes

    assert (info.name, info.mode, info.setting) == ("n1", NodeMode.FULL, NodeMode.FULL)
    assert info.lease_s == ports.leases.ttl_s
    actor = info.actors["worker"]
    assert (actor.wakes, actor.runs, actor.slots, actor.domain) == (True, True, 3, "default")
    assert actor.expectations["thing"].triggers == ("event thing.happened",)


async def test_a_node_that_stops_is_gone_at_once_and_one_that_dies_when_its_time_is_over(
    ports, app
):
    async with watching(ports) as members:
        async with running(app, ports, "n1"):
            await eventually(lambda: members.nodes)
        assert await ports.gates.get(node_key("n1")) is None
        await eventually(lambda: not members.nodes)
        async with doomed(app, ports, "n2"):
            await eventually(lambda: members.nodes)
        assert await ports.gates.get(node_key("n2")) is not None
        await eventually(lambda: not members.nodes)


@pytest.mark.parametrize("is_dead", [True, False])
async def test_only_a_dead_process_loses_its_presence_and_its_claims_to_the_next_of_its_name(
    ports, app, is_dead
):
    async with watching(ports) as members, running(app, ports, "n1"):
        await eventually(lambda: members.nodes)
        lease = await ports.leases.acquire("episode.worker.e1", holder="n1")
        assert lease is not None

        cut = await succeed(ports, "n1", is_dead=lambda _: is_dead)

        assert sorted(cut) == ([lease.key, node_claim("n1")] if is_dead else [])
        assert await ports.leases.owns(lease) is not is_dead


async def test_a_presence_ends_at_the_revision_that_is_over_and_not_if_it_was_renewed(ports):
    key = node_key("n1")
    over = await ports.gates.put(key, b"said", ttl_s=10)
    renewed = await ports.gates.put(key, b"said", ttl_s=10)
    await end_presence(ports.gates, key, over)
    assert await ports.gates.get(key) is not None
    await end_presence(ports.gates, key, renewed)
    assert await ports.gates.get(key) is None


async def test_a_node_that_lives_is_there_for_longer_than_what_it_says_lasts(ports, app):
    said: list[bytes | None] = []
    said_by_nodes = ports.gates.watch(under=NODES)
    async with said_by_nodes as watch, running(app, ports, "n1"), asyncio.timeout(WAIT_S):
        while len(said) < 4:
            said += [entry.value for entry in await watch.receive(most=1, wait_s=WAIT_S)]
    assert len(set(said[1:])) == 1, "it says the same once its actor is ready"


async def test_only_nodes_that_run_an_actor_have_room_for_it(ports, app):
    async with watching(ports) as members, running(app, ports, "n1"), running(app, ports, "n2"):
        await eventually(lambda: members.capacity("worker") == 6)
        changes = asyncio.create_task(members.wait_change())
        await ports.registry.put(mode_key("n2"), b'{"mode":"trigger_only"}')
        await asyncio.wait_for(changes, WAIT_S)
        await eventually(lambda: members.capacity("worker") == 3)
        assert members.capacity("another") == 0
        two = {info.name: info.actors["worker"] for info in members.nodes}["n2"]
        assert (two.wakes, two.runs) == (True, False)


async def test_what_says_nothing_of_a_node_is_passed_over(ports, app):
    await ports.gates.put(node_key("strange"), b"nonsense")
    await ports.gates.put("cooldown.worker.thing.x", b"{}")
    async with watching(ports) as members, running(app, ports, "n1"):
        await eventually(lambda: [info.name for info in members.nodes] == ["n1"])
        assert [info.name for info in await live_nodes(ports.gates)] == ["n1"]


async def test_of_two_nodes_of_one_name_the_later_is_seen_and_both_say_so(ports, app, later):
    with capture_logs() as lines:
        async with watching(ports) as members, running(app, ports, "n1"):
            await eventually(lambda: members.capacity("worker") == 3)
            async with running(later, ports, "n1"):
                await eventually(lambda: members.capacity("worker") == 7)
                await eventually(lambda: len(_warnings(lines)) == 2)
                assert [info.name for info in members.nodes] == ["n1"]
    arriving, giving_way = _warnings(lines)
    assert "takes its place" in arriving["event"]
    assert "not seen any more" in giving_way["event"]
    assert arriving["do"] == giving_way["do"] == TWO_OF_A_NAME
    assert arriving["other"] != giving_way["other"]


async def test_the_earlier_of_two_nodes_is_seen_again_when_the_later_one_stops(ports, app, later):
    async with watching(ports) as members, running(app, ports, "n1"):
        await eventually(lambda: members.capacity("worker") == 3)
        async with running(later, ports, "n1"):
            await eventually(lambda: members.capacity("worker") == 7)
        await eventually(lambda: members.capacity("worker") == 3)


async def test_the_later_of_two_nodes_is_there_when_the_earlier_one_has_stopped(ports, app, later):
    async with watching(ports) as members, AsyncExitStack() as stack:
        async with running(app, ports, "n1"):
            await eventually(lambda: members.capacity("worker") == 3)
            await stack.enter_async_context(running(later, ports, "n1"))
            await eventually(lambda: members.capacity("worker") == 7)
        (left,) = await live_nodes(ports.gates)
        assert left.actors["worker"].slots == 7


async def test_a_node_whose_place_is_another_versions_takes_it(ports, app):
    await ports.gates.put(node_key("n1"), b"nonsense")
    with capture_logs() as lines:
        async with watching(ports) as members, running(app, ports, "n1"):
            await eventually(lambda: members.capacity("worker") == 3)
    assert [line["other"] for line in _warnings(lines)] == ["a process of another version"]


async def test_a_node_that_comes_back_in_order_warns_of_nobody(ports, app):
    with capture_logs() as lines:
        for _ in range(2):
            async with watching(ports) as members, running(app, ports, "n1"):
                await eventually(lambda: members.capacity("worker") == 3)
    assert not _warnings(lines)


def _warnings(lines):
    return [line for line in lines if line["log_level"] == "warning"]
