"""A node and a projector in this process, until they are told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from msgspec import structs

from engine.app.app import App
from engine.cluster.modes import NodeMode
from engine.node.node import Node
from projections.postgres import pool as postgres
from projections.postgres.pool import Pool
from projections.postgres.projector import project
from streams import jetstream
from streams.clock import SystemClock
from streams.jetstream import LinkSettings
from streams.ports.all import Ports
from vigil.settings import Reading
from vigil.version import vigil_version


@asynccontextmanager
async def connected(
    reading: Reading, *, creates: bool = True, is_for_node: bool = False
) -> AsyncIterator[Ports]:
    """Yield the log of the stack; what of it is missing on the server is created.

    Args:
        reading: the settings.
        creates: whether to make a stack that is not there, too. Whoever only looks or asks does
            not: its name would be a typo.
        is_for_node: whether to see that the server lets us do all that a node does.

    Raises:
        BadName: there are no credentials where the settings say.
        Unavailable: no NATS server could be reached.
        Incompatible: the server, or a stream, is not what the engine needs; no such stack; or we
            lack a right.
    """
    url, link = reading.settings.nats_url, link_settings(reading)
    connecting = jetstream.connect(
        url, stack=reading.stack, settings=link, creates=creates, is_for_node=is_for_node
    )
    async with connecting as ports:
        yield ports


@asynccontextmanager
async def connected_elsewhere(reading: Reading) -> AsyncIterator[Sequence[Ports]]:
    """Yield the logs of the other stacks that the settings want served; see `connected`."""
    # How many partitions they have, the servers say: the setting is about the own stack.
    settings = structs.replace(reading.settings, partitions=None)
    async with AsyncExitStack() as entered:
        yield [
            await entered.enter_async_context(
                connected(replace(reading, settings=settings, stack=stack), is_for_node=True)
            )
            for stack in reading.serves
        ]


def link_settings(reading: Reading) -> LinkSettings:
    """Return what the settings say about the connection and what it creates."""
    settings = reading.settings
    return LinkSettings(
        name=f"vigil {reading.node}",
        lease_ttl_s=settings.lease_s,
        replicas=settings.replicas,
        partitions=settings.partitions,
        creds=settings.nats_creds or None,
        inbox_prefix=settings.nats_inbox,
        domain=settings.nats_domain,
    )


@asynccontextmanager
async def pooled(reading: Reading) -> AsyncIterator[Pool]:
    """Yield connections to Postgres that were tried once.

    Raises:
        PostgresUnavailable: no server there, or it does not let us in.
    """
    pool = await postgres.connect(reading.settings.postgres_dsn)
    async with pool:
        yield pool


@asynccontextmanager
async def projecting(ports: Ports, pool: Pool, *, node: str) -> AsyncIterator[None]:
    """Keep the rows of the stack up to date meanwhile."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(project(ports, pool, node=node, clock=SystemClock(), stop=stop))
        yield
        stop.set()


async def run_nodes(
    app: App, ports: Ports, others: Sequence[Ports], reading: Reading, *, stop: asyncio.Event
) -> bool:
    """Run `app` until `stop`; return whether no episode had to be left to its lease.

    Args:
        app: what to run.
        ports: the log of its stack.
        others: the logs of stacks where it runs what others have woken, and wakes nobody itself.
        reading: the settings.
        stop: ends it.
    """
    name, grace_s, version = reading.node, reading.settings.grace_s, vigil_version()
    mode = NodeMode(reading.settings.mode)
    own = Node(app, ports, name=name, grace_s=grace_s, version=version, mode=mode)
    guests = [
        Node(app, each, name=name, grace_s=grace_s, version=version, never_wakes=True)
        for each in others
    ]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_run(node, stop)) for node in (own, *guests)]
    return all(task.result() for task in running)


async def _run(node: Node, stop: asyncio.Event) -> bool:
    running = asyncio.create_task(node.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        node.stop()
        return await running
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait({running, stopping})
