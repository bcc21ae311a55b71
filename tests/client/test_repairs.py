"""What a client does to find and repair what is wrong with a stack."""

from __future__ import annotations

import pytest

from engine.cluster.nodes import encoded
from streams.keys import node_key
from tests.projections.lives import projecting, wait_projected
from tests.vigil.journal import DBA, NODE_TTL_S, said_by
from vigil.client import Client
from vigil.errors import Mistake, NotFound, Trouble


async def test_a_stack_in_which_nothing_was_forgotten_has_nothing_to_restart(ports, pool, client):
    await client.publish("disk.measured", {})
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        report = await client.repairs.recover(dry_run=True)
    assert set(report.counts.values()) == {0}
    assert (report.episodes, report.instances, report.unserved) == ([], [], [])
    assert report.advice == []


async def test_nothing_is_reconciled_while_no_node_says_what_it_declares(client):
    done = await client.repairs.reconcile("dba", reason="deploy")
    assert (done.nodes, done.steps, done.overtaken) == ([], [], 0)


async def test_an_actor_that_nobody_knows_is_not_reconciled(ports, client):
    said = encoded(said_by("idle", {}, **DBA))
    await ports.gates.put(node_key("idle"), said, ttl_s=NODE_TTL_S)
    with pytest.raises(NotFound, match="nobody knows an actor 'dbb'"):
        await client.repairs.reconcile("dbb")


async def test_a_reason_that_cannot_be_kept_is_a_mistake(client):
    with pytest.raises(Mistake, match="reason"):
        await client.repairs.reconcile(reason="x" * 4_000)


async def test_what_is_about_servers_needs_settings(client):
    for asked in (client.repairs.doctor(), client.repairs.find_losses()):
        with pytest.raises(Trouble, match="this client has no settings"):
            await asked


async def test_servers_are_examined_and_what_they_have_lost_is_accepted(nats, postgres, stack):
    servers = {"nats_url": nats.url, "postgres_dsn": postgres.dsn}
    name = f"repairs-{stack.name}"
    async with Client(**servers, stack=name, by="ann", create_stack=True) as client:
        await client.publish("disk.measured", {})
        checks = await client.repairs.doctor()
        found = await client.repairs.find_losses()
        rebuilt = await client.repairs.accept_losses(found)
        with pytest.raises(Mistake, match="reason"):
            await client.repairs.accept_losses(found, reason="x" * 5_000)
    assert checks[0].what.startswith("NATS at ")
    assert checks[0].status == "ok"
    assert not found.is_to_accept
    assert rebuilt == {}
