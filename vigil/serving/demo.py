"""`vigil demo`: this machine, watched by the actors of `vigil.demo`, on own servers.

Everything is kept in `.vigil/demo`, so a second run goes on where the first one ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from engine.app.app import App
from projections.errors import NotCaughtUp, PostgresUnavailable, QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from projections.postgres.query_result import Row
from projections.postgres.reader import list_episodes, list_findings
from streams.clock import Clock, SystemClock
from streams.model.findings import FindingStatus
from streams.ports.all import Ports
from streams.subjects import Stack
from vigil import runfile
from vigil.asking.connect import connected, pooled
from vigil.asking.rows import answer, shown_question
from vigil.errors import Trouble
from vigil.printing import tables
from vigil.serving import names, telemetry
from vigil.serving.beside import console, running
from vigil.serving.exit import EXIT_S
from vigil.serving.loss_watch import watched_streams
from vigil.serving.node import projecting, run_nodes, run_settings, succeed_last
from vigil.serving.servers import Servers, embedded
from vigil.serving.signals import run_program, stopping, unwind_on_sigterm, wait_stop
from vigil.serving.stack_work import StackWork
from vigil.settings import Config, read

FOLDER: Final = runfile.FOLDER / "demo"
APP: Final = "vigil.demo.app:app"

PUBLISHER: Final = "vigil.demo.publisher"
PUBLISH_EVERY_S: Final = 1.0

CATCH_UP_S_MAX: Final = 5.0

CONSOLE_S_MAX: Final = 15.0
"""Longest wait for the address of the console, which comes before what the terminal shows."""

QUESTIONS: Final = ("active_findings_by_severity", "newest_steps", "episodes_per_minute")


def show(given: Mapping[str, object], *, seconds: float | None) -> None:
    """Run the demo until Ctrl-C, or for `seconds`.

    Raises `Trouble` if something is not installed, servers run here, or the tables are another
    version's.
    """
    unwind_on_sigterm()
    app = _app()
    with runfile.locked(runfile.FOLDER), embedded(FOLDER) as servers:
        read_config = read({**given, **servers.settings()})
        print(f"NATS      {servers.nats.url}\nPostgres  {servers.postgres.dsn}", flush=True)
        with (
            names.named(read_config, app) as config,
            runfile.announced(runfile.FOLDER, run_settings(config)),
            (FOLDER / "vigil.log").open("a", encoding="utf-8") as log,
            console(config, FOLDER) as is_console_told,
        ):
            is_console_told.wait(CONSOLE_S_MAX)
            print(how_to_end(seconds), flush=True)
            level = config.settings.log_level
            telemetry.log_to(log, form="console", level=level, node=config.node)
            telemetry.export(os.environ, node=config.node)
            run_program(_run(app, config, servers, seconds=seconds))


def how_to_end(seconds: float | None) -> str:
    """Return what ends a demo that runs for `seconds`; None: until it is told to stop."""
    if seconds is None:
        return "Ctrl-C ends it."
    return f"It ends {seconds:g} s after its start; Ctrl-C ends it at once."


def _app() -> App:
    if find_spec("psutil") is None:
        raise Trouble("the demo needs psutil and own servers: pip install 'vigil-engine[demo]'")
    from vigil.demo.app import app

    return app


async def _run(app: App, config: Config, servers: Servers, *, seconds: float | None) -> None:
    stop = asyncio.Event()
    within_s = config.settings.grace_s + EXIT_S
    with stopping(stop.set, abandon=servers.kill, within_s=within_s):
        async with (
            connected(config, is_staying=True) as ports,
            watched_streams(ports, node=config.node),
            pooled(config) as pool,
        ):
            await succeed_last(ports, config)
            async with projecting(ports, pool, node=config.node):
                async with asyncio.TaskGroup() as group:
                    group.create_task(
                        run_nodes(app, ports, [], config, StackWork(), stop=stop, app_name=APP)
                    )
                    with _publisher(config):
                        clock = SystemClock()
                        await watch(pool, ports.stack, clock=clock, stop=stop, seconds=seconds)
                    stop.set()
                await _sum_up(ports, pool)


@contextmanager
def _publisher(config: Config) -> Iterator[None]:
    command = [
        *(sys.executable, "-m", PUBLISHER),
        *("--url", config.settings.nats_url),
        *("--stack", config.stack.name),
        *("--interval", str(PUBLISH_EVERY_S)),
    ]
    with running(command, log=FOLDER / "publisher.log"):
        yield


async def _sum_up(ports: Ports, pool: Pool) -> None:
    console = tables.terminal()
    try:
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=CATCH_UP_S_MAX)
    except NotCaughtUp as error:
        console.print(f"the rows are not complete yet: {error}")
    for name in QUESTIONS:
        console.print(f"\n{shown_question(name, ports.stack)}", style="dim", markup=False)
        found = await answer(pool, ports.stack, name)
        console.print(tables.table(found.as_rows(), found.columns))
    console.print(_HOW_ON, markup=False)


_HOW_ON: Final = f"""
Everything is kept in {FOLDER}. Run `vigil demo` again, and in another terminal, here:

  vigil findings list                 what is true now
  vigil episodes list --limit 10      who found it
  vigil episodes steps <episode id>   and how
  vigil sql "table active_findings"
"""


LOOK_S: Final = 0.5
"""Between two looks at the rows, in seconds."""

LINE_LOOKS: Final = 4

EPISODES_SHOWN: Final = 12
FINDINGS_SHOWN: Final = 12
FINDINGS_COUNTED_MAX: Final = 1_000

_EPISODE_COLUMNS: Final = (
    "status", "actor_id", "expectation_id", "subject_id", "turns_used", "summary",
)  # fmt: skip
_FINDING_COLUMNS: Final = ("severity", "finding_key", "summary")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The rows at one moment."""

    elapsed_s: float
    counts: list[Row] = []
    episodes: list[Row] = []
    findings: list[Row] = []

    def headline(self) -> str:
        """Return how many there are of what."""
        episodes = ", ".join(f"{row['episodes']} {row['status']}" for row in self.counts)
        found = f"active findings: {len(self.findings)}"
        return f"{self.elapsed_s:4.0f} s   episodes: {episodes or 'none yet'}   {found}"


async def watch(
    pool: Pool, stack: Stack, *, clock: Clock, stop: asyncio.Event, seconds: float | None
) -> None:
    """Show episodes and findings until `stop`, or for `seconds`."""
    console, camera = tables.terminal(), _Snapshots(pool, stack, clock)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if console.is_terminal:
                await _watch_live(console, camera, stop)
            while not stop.is_set():
                console.print((await camera.picture()).headline())
                await wait_stop(stop, timeout_s=LOOK_S * LINE_LOOKS)


class _Snapshots:
    def __init__(self, pool: Pool, stack: Stack, clock: Clock) -> None:
        self._pool, self._stack, self._clock = pool, stack, clock
        self._began_s = clock.monotonic_s()

    async def picture(self) -> Snapshot:
        """Return the rows now; none while the tables are still being made."""
        pool, stack = self._pool, self._stack
        elapsed_s = self._clock.monotonic_s() - self._began_s
        active, most = FindingStatus.ACTIVE, FINDINGS_COUNTED_MAX
        try:
            return Snapshot(
                elapsed_s=elapsed_s,
                counts=(await answer(pool, stack, "episodes_by_status")).as_rows(),
                episodes=await list_episodes(pool, stack, limit=EPISODES_SHOWN),
                findings=await list_findings(pool, stack, status=active, limit=most),
            )
        except (QueryRefused, PostgresUnavailable):
            return Snapshot(elapsed_s=elapsed_s)


async def _watch_live(console: Console, camera: _Snapshots, stop: asyncio.Event) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.is_set():
            live.update(_drawn(await camera.picture()), refresh=True)
            await wait_stop(stop, timeout_s=LOOK_S)


def _drawn(picture: Snapshot) -> Group:
    return Group(
        Text(picture.headline(), style="bold"),
        Text(),
        tables.table(picture.episodes, _EPISODE_COLUMNS, title="Episodes"),
        Text(),
        tables.table(picture.findings[:FINDINGS_SHOWN], _FINDING_COLUMNS, title="Active findings"),
    )
