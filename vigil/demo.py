"""`vigil demo`: this machine, watched by actors.

    publisher ──measurements──▶ NATS ──▶ node ──▶ journal ──▶ projector ──▶ Postgres ──▶ you

The publisher is a program of its own that knows nothing of Vigil. Everything is kept in
`.vigil/demo`, so a second run goes on where the first one ended.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from projections.errors import NotCaughtUp
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from streams.child import die_with
from streams.clock import SystemClock
from streams.ports.all import Ports
from vigil import App, apps, questions, runfile, tables, telemetry, view
from vigil.errors import Mistake, Trouble
from vigil.running import run, stopping, unwind_on_sigterm
from vigil.servers import Servers, embedded
from vigil.serving import run_settings
from vigil.settings import Reading, read
from vigil.work import connected, pooled, projecting, run_nodes

FOLDER: Final = runfile.FOLDER / "demo"
PUBLISHER: Final = "examples.host_monitor.publisher"
PUBLISH_EVERY_S: Final = 1.0

PUBLISHER_STOP_S_MAX: Final = 5.0
"""Longest wait for the publisher to end in order; then it is killed."""

CATCH_UP_S_MAX: Final = 5.0
"""Longest wait for the rows to show the last episodes."""

QUESTIONS: Final = ("active_findings_by_severity", "newest_steps", "episodes_per_minute")
"""Files in `vigil/sql`, in the order in which they are asked at the end."""


def show(given: Mapping[str, object], *, seconds: float | None) -> None:
    """Run the demo until Ctrl-C, or for `seconds`.

    Raises:
        Trouble: the example is not there, servers run here already, or the tables are another
            version's.
        Incompatible, Unavailable, PostgresUnavailable: a server did not start.
    """
    unwind_on_sigterm()
    app = _example()
    with runfile.locked(runfile.FOLDER), embedded(FOLDER) as servers:
        reading = read({**given, **servers.settings()})
        print(f"NATS      {servers.nats.url}\nPostgres  {servers.postgres.dsn}", flush=True)
        with (
            runfile.announced(runfile.FOLDER, run_settings(reading)),
            (FOLDER / "vigil.log").open("a", encoding="utf-8") as log,
        ):
            level = reading.settings.log_level
            telemetry.log_to(log, form="console", level=level, node=reading.node)
            telemetry.export(os.environ, node=reading.node)
            run(_run(app, reading, servers, seconds=seconds))


def _example() -> App:
    try:
        return apps.load(apps.DEMO)
    except Mistake as error:
        raise Trouble(
            f"the demo needs the folder `examples` of Vigil's sources and its extra `examples`: "
            f"{error}"
        ) from error


async def _run(app: App, reading: Reading, servers: Servers, *, seconds: float | None) -> None:
    stop = asyncio.Event()
    with stopping(stop.set, abandon=servers.kill):
        async with (
            connected(reading) as ports,
            pooled(reading) as pool,
            projecting(ports, pool, node=reading.node),
        ):
            async with asyncio.TaskGroup() as group:
                group.create_task(run_nodes(app, ports, [], reading, stop=stop))
                with _publisher(reading):
                    clock = SystemClock()
                    await view.watch(pool, ports.stack, clock=clock, stop=stop, seconds=seconds)
                stop.set()
            await _sum_up(ports, pool)


@contextmanager
def _publisher(reading: Reading) -> Iterator[None]:
    """Run the program that measures this machine. It knows NATS and nothing of us."""
    command = [
        *(sys.executable, "-m", PUBLISHER),
        *("--url", reading.settings.nats_url),
        *("--stack", reading.stack.name),
        *("--interval", str(PUBLISH_EVERY_S)),
    ]
    with (FOLDER / "publisher.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program, our own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=PUBLISHER_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _sum_up(ports: Ports, pool: Pool) -> None:
    """Ask the rows what happened, and say how to go on asking."""
    console = tables.terminal()
    try:
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=CATCH_UP_S_MAX)
    except NotCaughtUp as error:
        console.print(f"the rows are not complete yet: {error}")
    for name in QUESTIONS:
        console.print(f"\n{questions.shown(name, ports.stack)}", style="dim", markup=False)
        found = await questions.answer(pool, ports.stack, name)
        console.print(tables.table(found.as_rows(), found.columns))
    console.print(_HOW_ON, markup=False)


_HOW_ON: Final = f"""
Everything is kept in {FOLDER}. Run `vigil demo` again, and in another terminal, here:

  vigil findings list                 what is true now
  vigil episodes list --limit 10      who found it
  vigil episodes steps <episode id>   and how
  vigil sql "table active_findings"
"""
