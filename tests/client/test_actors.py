"""What a client does with actors: pausing, and what is known of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from engine.cluster.nodes import encoded
from streams import jetstream
from streams.clock import SystemClock
from streams.embedded import EmbeddedNats
from streams.keys import node_key
from streams.subjects import Stack
from tests.engine.adapters.samples import free_port
from tests.projections.lives import projecting, wait_projected
from tests.vigil.journal import DBA, NODE_TTL_S, said_by
from vigil.client import Client
from vigil.errors import Mistake, NotFound, ServerAway, StackNotFound, Trouble


@pytest.fixture
async def node(ports):
    """Everybody thinks that a node runs `dba`."""
    said = encoded(said_by("idle", {}, **DBA))
    await ports.gates.put(node_key("idle"), said, ttl_s=NODE_TTL_S)


async def put_node(ports, name, *, runs, wakes, actor="dba"):
    """Have everybody think that a node does so much for an actor."""
    said = said_by(name, {}, **{actor: 0})
    info = replace(said.actors[actor], runs=runs, wakes=wakes)
    said = replace(said, actors={actor: info})
    await ports.gates.put(node_key(name), encoded(said), ttl_s=NODE_TTL_S)


async def test_an_actor_is_paused_and_resumed_once(ports, client, node):
    first = await client.actors.pause("dba", reason="deploy")
    again = await client.actors.pause("dba", reason="deploy")
    (paused,) = await client.actors.list()
    ended = await client.actors.resume("dba")
    nothing = await client.actors.resume("dba")
    (resumed,) = await client.actors.list()

    assert (first.is_new, first.says) == (True, "paused")
    assert not again.is_new
    assert (paused.actor_id, paused.paused, paused.nodes) == ("dba", "deploy", ["idle"])
    assert (ended.is_new, ended.says) == (True, "resumed")
    assert (nothing.is_new, nothing.says) == (False, "was not paused")
    assert resumed.paused == ""


async def test_a_program_waits_until_a_node_is_ready(ports, client):
    with pytest.raises(Trouble, match="no node is up, after 0 s"):
        await client.nodes.wait_ready(timeout_s=0)
    waits = asyncio.create_task(client.nodes.wait_ready("dba"))
    await put_node(ports, "web", runs=True, wakes=True, actor="other")
    await put_node(ports, "half", runs=True, wakes=False)
    await put_node(ports, "idle", runs=False, wakes=False)
    assert await client.nodes.wait_ready() == ["half", "web"]
    with pytest.raises(Trouble, match="actor 'dba': no node that is up wakes it"):
        await client.nodes.wait_ready("dba", timeout_s=0)
    with pytest.raises(Trouble, match="no node that is up has it; did you mean dba"):
        await client.nodes.wait_ready("dbb", timeout_s=0)
    assert not waits.done()
    await put_node(ports, "whole", runs=True, wakes=True)
    assert await waits == ["half", "whole"]
    await client.actors.pause("dba", reason="deploy")
    with pytest.raises(Trouble, match="it is paused"):
        await client.nodes.wait_ready("dba", timeout_s=0)


class Meanwhile(SystemClock):
    """A clock on which one thing after the other happens while somebody sleeps."""

    def __init__(self, *happens):
        self.left = list(happens)

    async def sleep(self, seconds):
        await self.left.pop(0)()


async def test_who_waits_for_a_node_waits_for_its_server_and_its_stack_too(tmp_path):
    async with AsyncExitStack() as opened:
        server = EmbeddedNats(tmp_path, port=free_port())

        async def server_starts():
            opened.enter_context(server)

        async def node_starts():
            connecting = jetstream.connect(server.url, stack=Stack("fresh"))
            ports = await opened.enter_async_context(connecting)
            await put_node(ports, "web", runs=True, wakes=True)

        client = await opened.enter_async_context(Client(nats_url=server.url, stack="fresh"))
        with pytest.raises(ServerAway):
            await client.nodes.wait_ready(timeout_s=0)
        client.connections.clock = Meanwhile(server_starts, node_starts)
        assert await client.nodes.wait_ready("dba") == ["web"]
        other = await opened.enter_async_context(Client(nats_url=server.url, stack="other"))
        with pytest.raises(StackNotFound):
            await other.nodes.wait_ready(timeout_s=0)


async def test_nodes_that_are_disabled_are_not_ready(ports, client):
    await put_node(ports, "idle", runs=False, wakes=False)
    with pytest.raises(Trouble, match="every node is disabled"):
        await client.nodes.wait_ready(timeout_s=0)


async def test_an_order_has_the_name_of_who_gave_it(ports, pool, client, node):
    await client.actors.pause("dba", reason="deploy")
    await client.actors.resume("dba", by="bob")
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        page = await client.orders.list(actor="dba")
        none = await client.orders.list(actor="other")
    said = [(each.change, each.person, each.reason) for each in page.items]
    assert said == [("actor_resumed", "bob", None), ("actor_paused", "ann", "deploy")]
    assert (none.items, none.why_none) == ((), "")
    assert await client.orders.rebuild() == []


async def test_what_nobody_knows_is_not_found_while_a_node_is_up(client, node):
    for asked in (
        client.actors.pause("dbb"),
        client.actors.resume("dbb"),
        client.actors.get("dbb"),
        client.actors.refusals("dbb", "shrink"),
    ):
        with pytest.raises(NotFound, match=r"nobody knows an actor 'dbb'; did you mean dba?"):
            await asked


async def test_what_nobody_knows_is_not_found_where_there_are_no_rows_to_ask(ports, node):
    async with Client.on(ports, by="ann") as client:
        with pytest.raises(NotFound, match="nobody knows an actor 'dbb'"):
            await client.fire("dbb", "shrink")


async def test_one_actor_is_shown_with_its_expectations(client, node):
    found = await client.actors.get("dba")
    assert (found.summary.source, found.summary.running_on) == ("code", ["idle"])
    assert (found.definition, found.expectations) == ({}, [])
    assert await client.actors.refusals("dba", "shrink") == []


async def test_what_is_left_of_a_paused_actor_is_told_until_nothing_is(ports, pool, client, node):
    await client.actors.pause("dba")
    drained = client.actors.drain("dba", timeout_s=0)
    assert await anext(drained) in {"1 nodes that do not know yet", "the rows are not up to date"}
    with pytest.raises(Trouble, match="dba is not drained after 0 s"):
        await anext(drained)


async def test_the_mode_of_a_node_is_set_and_unset_once(ports, client, node):
    first = await client.nodes.set_mode("idle", "disabled", reason="deploy")
    (seen,) = (await client.nodes.read()).nodes
    other = await client.nodes.set_mode("later", "full", actor="dba")
    ended = await client.nodes.unset_mode("idle")
    nothing = await client.nodes.unset_mode("idle")

    assert (first.is_new, first.says) == (True, "disabled")
    assert (seen.node, seen.state, seen.mode, seen.said) == ("idle", "up", "disabled", "order")
    assert (seen.by, seen.reason, seen.runs) == ("ann", "deploy", ["dba"])
    assert other.says == "full; the node is not up, and takes this mode when it starts"
    assert (ended.is_new, ended.says) == (True, "as it was started")
    assert (nothing.is_new, nothing.says) == (False, "there was no order")


async def test_a_mode_or_a_node_that_there_is_not_is_refused(client, node):
    with pytest.raises(Mistake, match="'idel' is no mode; use full, trigger_only, disabled"):
        await client.nodes.set_mode("idle", "idel")
    with pytest.raises(NotFound, match="no node 'idel' is up"):
        await client.nodes.read(node="idel")
    with pytest.raises(NotFound, match=r"no node 'idel' is up, .*; did you mean idle\?"):
        await client.nodes.unset_mode("idel")


async def test_an_actor_that_nobody_knows_is_not_drained(client):
    with pytest.raises(NotFound, match="nobody knows an actor 'dba'"):
        await anext(client.actors.drain("dba"))
