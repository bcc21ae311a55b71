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
    str, typer.Option(metavar="N", help="Number of nodes, each in a process of its own: 1 to 64.")
]


def demo(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="End after this many seconds.", show_default=False)
    ] = None,
) -> None:
    """Watch this machine: servers of its own, real measurements, live findings, SQL to try."""
    from vigil import demo

    demo.show(context.given(ctx), seconds=seconds)


def up(
    ctx: typer.Context,
    *,
    app: AppName,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for the servers' data.")] = Path(
        ".vigil"
    ),
    processes: Processes = "1",
) -> None:
    """Run NATS and Postgres servers of your own, a node and a projector, until Ctrl-C."""
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
        bool, typer.Option("--project/--no-project", help="Run a projector, too.")
    ] = True,
    processes: Processes = "1",
    stacks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Several stacks: a node for each, or several."),
    ] = None,
) -> None:
    """Run a node against existing servers, until SIGINT or SIGTERM.

    Exit code 3: an episode did not reach a barrier in time, and waits for its lease to expire. A
    second signal ends the node at once. With several processes, one that ends by itself is
    restarted, and the exit code is the worst of theirs.
    """
    if stacks is not None:
        raise typer.Exit(_serve_each(ctx, app, processes, stacks, is_projecting=is_projecting))
    reading = context.reading(ctx)
    run = _serving(app, processes, is_projecting=is_projecting)
    raise typer.Exit(run(reading, None))


def project(ctx: typer.Context) -> None:
    """Run only a projector, until SIGINT or SIGTERM."""
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
