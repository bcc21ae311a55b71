"""Nodes and projectors in this process, until a signal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from engine.app import App
from engine.modes import NodeMode
from engine.runtime.node import Node
from projections.postgres.pool import Pool
from projections.postgres.projector import project
from streams.clock import SystemClock
from streams.ports import Ports
from vigil import runfile
from vigil.asking.connect import connected, connected_elsewhere, pooled
from vigil.errors import EXIT_UNCLEAN
from vigil.serving import telemetry
from vigil.serving.servers import Servers, embedded
from vigil.serving.signals import run_program, stopping, unwind_on_sigterm
from vigil.settings import Reading, shown
from vigil.version import vigil_version


def serve(
    reading: Reading,
    *,
    app: App | None,
    is_projecting: bool,
    abandon: Callable[[], None] | None = None,
) -> int:
    """Run a node of `app`, a projector, or both, until SIGINT or SIGTERM; return the exit code.

    A second signal ends the program at once, after `abandon`. Prints one line once it is
    connected.
    """
    settings = reading.settings
    telemetry.log_to_stderr(form=settings.log, level=settings.log_level, node=reading.node)
    telemetry.export(os.environ, node=reading.node)
    is_clean = run_program(_serve(reading, app, is_projecting=is_projecting, abandon=abandon))
    return 0 if is_clean else EXIT_UNCLEAN


async def _serve(
    reading: Reading,
    app: App | None,
    *,
    is_projecting: bool,
    abandon: Callable[[], None] | None,
) -> bool:
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(connected(reading, is_for_node=app is not None))
        if is_projecting:
            pool = await stack.enter_async_context(pooled(reading))
            await stack.enter_async_context(projecting(ports, pool, node=reading.node))
        stack.enter_context(stopping(stop.set, abandon=abandon))
        print(_greeting(reading, app, is_projecting=is_projecting), flush=True)
        if app is not None:
            others = await stack.enter_async_context(connected_elsewhere(reading))
            return await run_nodes(app, ports, others, reading, stop=stop)
        return await stop.wait()


def _greeting(reading: Reading, app: App | None, *, is_projecting: bool) -> str:
    """Return one line: who this is, and what it is connected to."""
    settings = reading.settings
    who = f"node {reading.node}" if app is not None else f"projector {reading.node}"
    rows = shown("postgres_dsn", settings.postgres_dsn) if is_projecting else "not projecting"
    actors = f" · {_actors(app)}" if app is not None else ""
    url = shown("nats_url", settings.nats_url)
    return f"{who} · {_what(reading)} · {url} · {rows}{actors}"


def _actors(app: App) -> str:
    """Return which actors the app has; those that are defined as data come later."""
    return f"actors {', '.join(sorted(app.actors))}" if app.actors else "no actor yet"


def _what(reading: Reading) -> str:
    """Return the stack that we are of, and how a node differs from others there."""
    mode, serves = reading.settings.mode, reading.settings.serve_stacks
    said = [f"stack {reading.stack.name}"]
    said += [f"mode {mode}"] if mode != "full" else []
    said += [f"also serves {serves}"] if serves else []
    return " · ".join(said)


def up(
    folder: Path,
    read: Callable[[Servers], Reading],
    serve_on: Callable[[Reading, Callable[[], None]], int],
) -> int:
    """Run servers in `folder`, and what `serve_on` runs; return its exit code.

    Args:
        folder: keeps what the servers store. The run file is in the current folder's `.vigil`.
        read: makes the settings, once the servers' addresses are known.
        serve_on: runs nodes and a projector until a signal; a second one calls its last argument.

    Raises:
        Trouble: servers run there or here already, or the tables are another version's.
        Incompatible, Unavailable, PostgresUnavailable: something did not start.
    """
    unwind_on_sigterm()
    with runfile.locked(runfile.FOLDER, folder), embedded(folder) as servers:
        reading = read(servers)
        with runfile.announced(runfile.FOLDER, run_settings(reading)):
            print(f"NATS      {servers.nats.url}")
            print(f"Postgres  {servers.postgres.dsn}")
            return serve_on(reading, servers.kill)


def run_settings(reading: Reading) -> dict[str, str]:
    """Return what other terminals need to find this stack."""
    settings = reading.settings
    return {
        "nats_url": settings.nats_url,
        "postgres_dsn": settings.postgres_dsn,
        "stack": settings.stack,
        "env": settings.env,
    }


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
    """Run `app` until `stop`; return whether no episode was left to its lease.

    In the stacks of `others` it runs episodes that other nodes have opened, and opens none.
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
