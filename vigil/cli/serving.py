"""`vigil demo`, `up`, `node`, `project`: programs that run until they are told to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from vigil.cli import context

if TYPE_CHECKING:
    from vigil.servers import Servers
    from vigil.settings import Reading

AppName: TypeAlias = Annotated[
    str, typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="The app, such as watch:app.")
]

Processes: TypeAlias = Annotated[
    str, typer.Option(metavar="N", help="Nodes to run, a process each: 1 to 64.")
]


def demo(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="End after so many seconds.", show_default=False)
    ] = None,
) -> None:
    """Watch this machine: own servers, real measurements, live findings, SQL to try."""
    from vigil import demo

    demo.show(context.given(ctx), seconds=seconds)


def up(
    ctx: typer.Context,
    *,
    app: AppName,
    folder: Annotated[
        Path, typer.Option("--dir", help="Where the servers keep what they store.")
    ] = Path(".vigil"),
    processes: Processes = "1",
) -> None:
    """Run own NATS and Postgres servers, a node and a projector, until Ctrl-C."""
    from vigil import serving

    def read(servers: Servers) -> Reading:
        return context.reading(ctx, **servers.settings())

    run = _serving(app, processes, is_projecting=True)
    raise typer.Exit(serving.up(folder, read, run))


def node(
    ctx: typer.Context,
    *,
    app: AppName,
    is_projecting: Annotated[
        bool, typer.Option("--project/--no-project", help="Take turns at projecting, too.")
    ] = True,
    processes: Processes = "1",
    stacks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Stacks in the place of one: a node of each, or several."),
    ] = None,
) -> None:
    """Run an engine node against existing servers, until SIGINT or SIGTERM.

    Exit code 3: some episode did not reach a barrier in time and is left to its lease. A
    second signal ends the node at once. Of several processes, one is restarted when it ends by
    itself, and the worst exit code counts.
    """
    if stacks is not None:
        raise typer.Exit(_serve_each(ctx, app, processes, stacks, is_projecting=is_projecting))
    reading = context.reading(ctx)
    run = _serving(app, processes, is_projecting=is_projecting)
    raise typer.Exit(run(reading, None))


def project(ctx: typer.Context) -> None:
    """Run a projector by itself, until SIGINT or SIGTERM."""
    from vigil import serving

    raise typer.Exit(serving.serve(context.reading(ctx), app=None, is_projecting=True))


def _serving(
    name: str, processes_wanted: str, *, is_projecting: bool
) -> Callable[[Reading, Callable[[], None] | None], int]:
    """Return what runs the app called `name`, in this process or in several others."""
    from vigil import apps, naming, processes, serving

    app, count = apps.load(name), processes.counted(processes_wanted)

    def run(reading: Reading, abandon: Callable[[], None] | None) -> int:
        with naming.named(reading, app) as known:
            if count == 1:
                return serving.serve(known, app=app, is_projecting=is_projecting, abandon=abandon)
            return processes.supervise(
                [known], app=name, count=count, is_projecting=is_projecting, abandon=abandon
            )

    return run


def _serve_each(
    ctx: typer.Context, name: str, processes_wanted: str, stacks: str, *, is_projecting: bool
) -> int:
    """Run the app called `name` in each of the `stacks`, and return the worst exit code."""
    from vigil import apps, naming, processes, settings

    app, count = apps.load(name), processes.counted(processes_wanted)
    readings = settings.read_each(context.given(ctx), stacks)
    with naming.named_each(readings, app) as known:
        return processes.supervise(known, app=name, count=count, is_projecting=is_projecting)
