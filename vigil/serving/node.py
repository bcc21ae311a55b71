"""Nodes and projectors in this process, until a signal."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from engine.app.app import App
from engine.archive.purge_dead_letters import PurgeDeadLetters
from engine.cluster.members import succeed
from engine.cluster.nodes import NodeInfo
from engine.node.node import Node
from engine.retention.worker import STEPS
from projections.postgres.pool import Pool
from projections.postgres.progress import known_positions
from projections.postgres.projector import project
from streams.archive.history import with_history
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.model.losses import LogLost
from streams.model.modes import NodeMode
from streams.ports.all import Ports
from vigil import runfile
from vigil.archiving.find import finding_archive
from vigil.archiving.settings import archive_in
from vigil.archiving.step import ArchiveJournal
from vigil.asking.archiving import known_rows
from vigil.asking.connect import connected, connected_elsewhere, link_settings, pooled
from vigil.errors import EXIT_LOST, EXIT_UNCLEAN
from vigil.serving import processes, telemetry
from vigil.serving.alone import EXIT_NOT_OURS, FENCED, ProcessIsolation, place_of
from vigil.serving.app import check_models, tell_found, tell_missing_secrets
from vigil.serving.beside import console
from vigil.serving.exit import EXIT_S, end_within
from vigil.serving.loop_watch import watched_loop
from vigil.serving.loss_watch import watched_streams
from vigil.serving.servers import Servers, embedded
from vigil.serving.signals import run_program, stopping, unwind_on_sigterm
from vigil.serving.stack_work import StackWork
from vigil.serving.supervised import supervised
from vigil.settings import FILE, Config, retention_in, shown
from vigil.version import vigil_version

log = structlog.get_logger("vigil.node")

BLOCKED_LEASES_MAX: Final = 2
"""How long the event loop of a node may stand still, in lives of its leases: others have taken over
what it ran by then."""


def serve(
    config: Config,
    *,
    app: App | None,
    work: StackWork,
    app_name: str | None = None,
    abandon: Callable[[], None] | None = None,
) -> int:
    """Run a node of `app`, a projector, or both, until SIGINT or SIGTERM; return the exit code.

    A second signal ends the program at once, after `abandon`. `app_name` is where other processes
    find the app, such as `watch:app`; None: nowhere, so that suspects run here.
    """
    settings = config.settings
    form, level = settings.log, settings.log_level
    telemetry.log_to(sys.stderr, form=form, level=level, node=config.node)
    telemetry.export(os.environ, node=config.node)
    if app is not None:
        check_models(app)  # guard: unusable-model-told-at-start
    is_clean = run_program(_serve(config, app, work, app_name=app_name, abandon=abandon))
    return 0 if is_clean else EXIT_UNCLEAN


def _isolation(config: Config, app_name: str | None) -> ProcessIsolation | None:
    """Return where the suspects of a node run: in processes with its own settings and app."""
    if app_name is None:
        return None
    command = processes.command(config, app=app_name, work=StackWork(projects=False, reacts=False))
    return ProcessIsolation(config, command, processes.environment(config))


def serve_alone(config: Config, *, app: App, episode: str) -> int:
    """Run one episode, such as `disks/2fa109b0-…`, and nothing else; return the exit code."""
    form, level = config.settings.log, config.settings.log_level
    telemetry.log_to(sys.stderr, form=form, level=level, node=config.node)
    telemetry.export(os.environ, node=config.node)
    return 0 if run_program(_serve_alone(config, app, episode)) else EXIT_NOT_OURS


async def _serve_alone(config: Config, app: App, episode: str) -> bool:
    settings, fenced = config.settings, asyncio.Event()
    ends_after_s = BLOCKED_LEASES_MAX * settings.lease_s
    async with (
        connected(config, is_for_node=True, is_staying=True) as ports,
        watched_loop(ends_after_s=ends_after_s),
    ):
        node = Node(
            app,
            ports,
            name=config.node,
            grace_s=settings.grace_s,
            mode=NodeMode(settings.mode),
            version=vigil_version(),
            reacts=False,
        )
        with stopping(node.stop, within_s=settings.grace_s + EXIT_S):
            running = asyncio.create_task(node.run_alone(*place_of(episode), fenced))
            telling = asyncio.create_task(_tell(fenced))
            try:
                return await running
            finally:
                telling.cancel()


async def _tell(fenced: asyncio.Event) -> None:
    await fenced.wait()
    print(FENCED, flush=True)


async def _serve(
    config: Config,
    app: App | None,
    work: StackWork,
    *,
    app_name: str | None,
    abandon: Callable[[], None] | None,
) -> bool:
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(pooled(config)) if work.projects else None
        rows = await known_positions(pool, config.stack) if pool is not None else {}
        is_node = app is not None
        connecting = connected(config, is_for_node=is_node, is_staying=True, known=rows)
        ports = await stack.enter_async_context(connecting)
        if abandon is not None:
            await succeed_last(ports, config)
        end = partial(end_within, EXIT_S, loop=asyncio.get_running_loop(), code=EXIT_LOST)
        watching = watched_streams(ports, node=config.node, rows=rows, on_loss=end)
        await stack.enter_async_context(watching)
        if pool is not None:
            of_all = ports
            if is_node:  # Others read it anyway.
                find = await stack.enter_async_context(
                    finding_archive(config, link_settings(config))
                )
                of_all = with_history(ports, find)
            await stack.enter_async_context(projecting(of_all, pool, node=config.node))
        within_s = config.settings.grace_s + EXIT_S
        stack.enter_context(stopping(stop.set, abandon=abandon, within_s=within_s))
        print(_greeting(config, app, work), flush=True)
        if app is not None:
            others = await stack.enter_async_context(connected_elsewhere(config))
            return await run_nodes(app, ports, others, config, work, stop=stop, app_name=app_name)
        return await stop.wait()


async def succeed_last(ports: Ports, config: Config) -> None:
    """Have what the last process of this folder held go on now, if that was killed.

    Only for servers that are this process's own. Nothing is done unless a lock says that nobody
    else has the name of the node.
    """
    if not config.is_node_reserved:  # guard: only-reserved-names-succeed
        return
    try:
        held = await succeed(ports, config.node, is_dead=_is_dead)
    except Unavailable as error:
        log.warning("what was held before lapses in its own time", error=str(error))
        return
    if held:
        told = "what ran here last did not stop in order: what it held goes on now"
        log.info(told, held=len(held))


def _is_dead(info: NodeInfo) -> bool:
    return info.host == platform.node() and not runfile.lives(info.pid)


def _greeting(config: Config, app: App | None, work: StackWork) -> str:
    settings = config.settings
    words = [f"projector {config.node}" if app is None else f"node {config.node}"]
    words.append(f"stack {config.stack.name}")
    words += [f"mode {settings.mode}"] if settings.mode != "full" else []
    words += [f"also serves {settings.serve_stacks}"] if settings.serve_stacks else []
    words.append(shown("nats_url", settings.nats_url))
    words.append(
        shown("postgres_dsn", settings.postgres_dsn) if work.projects else "not projecting"
    )
    words += [] if work.reacts else ["not reacting"]
    if app is not None:  # Actors that are defined as data come later.
        words.append(f"actors {', '.join(sorted(app.actors))}" if app.actors else "no actor yet")
    return " · ".join(words)


def up(
    folder: Path,
    read: Callable[[Servers], Config],
    serve_on: Callable[[Config, Callable[[], None]], int],
    *,
    has_console: bool = True,
) -> int:
    """Run servers in `folder`, a console, and what `serve_on` runs; return its exit code.

    Args:
        read: makes the settings, once the servers' addresses are known.
        serve_on: runs nodes and a projector until a signal; a second one calls its last argument.

    Raises `Trouble` if servers run there or here already, or the tables are another version's.
    """
    unwind_on_sigterm()
    with runfile.locked(runfile.FOLDER, folder), embedded(folder) as servers:
        config = read(servers)
        with runfile.announced(runfile.FOLDER, run_settings(config)):
            print(f"NATS      {servers.nats.url}")
            print(f"Postgres  {servers.postgres.dsn}")
            with (
                supervised(servers, folder, clean=runfile.remove),
                console(config, folder, is_wanted=has_console),
            ):
                return serve_on(config, servers.kill)


def run_settings(config: Config) -> dict[str, str]:
    """Return what other terminals need to find this stack."""
    settings = config.settings
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
    app: App,
    ports: Ports,
    others: Sequence[Ports],
    config: Config,
    work: StackWork,
    *,
    stop: asyncio.Event,
    app_name: str | None,
) -> bool:
    """Run `app` until `stop`; return whether no episode was left to its lease.

    In the stacks of `others` it runs episodes that other nodes have opened, and opens none.
    `app_name`: see `serve`. Suspects of other stacks run here.
    """
    tell_found(app)  # guard: missing-names-told-at-start
    tell_missing_secrets(app)  # guard: missing-secrets-told-at-start
    name, grace_s, version = config.node, config.settings.grace_s, vigil_version()
    mode = NodeMode(config.settings.mode)
    make = partial(Node, app, name=name, grace_s=grace_s, version=version, reacts=work.reacts)
    isolation, kept = _isolation(config, app_name), retention_in(Path(FILE))
    spec = archive_in()
    rows = partial(known_rows, config, spec)
    archives = ArchiveJournal(config, spec, link_settings(config), rows)
    lets_go = [*STEPS, PurgeDeadLetters(rows), archives]
    own = make(ports, mode=mode, isolation=isolation, retention=kept, lets_go=lets_go)
    guests = [make(each, never_wakes=True) for each in others]
    ends_after_s = BLOCKED_LEASES_MAX * config.settings.lease_s
    async with watched_loop(ends_after_s=ends_after_s), asyncio.TaskGroup() as group:
        running = [
            group.create_task(_run(own, stop)),
            *(
                group.create_task(_run_guest(node, each, stop))
                for node, each in zip(guests, others, strict=True)
            ),
        ]
    return all(task.result() for task in running)


async def _run_guest(node: Node, ports: Ports, stop: asyncio.Event) -> bool:
    """Run a node in another stack. If that has lost its past, only this node ends."""
    is_clean = False
    try:
        async with watched_streams(ports, node=node.name):
            is_clean = await _run(node, stop)
    except* LogLost:
        log.warning("node ended in a stack that has lost its past", stack_name=ports.stack.name)
    return is_clean


async def _run(node: Node, stop: asyncio.Event) -> bool:
    running = asyncio.create_task(node.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        node.stop(reason="signal" if stop.is_set() else "")
        return await running
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait({running, stopping})
