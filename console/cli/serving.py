"""`vigil demo`, `up`, `node`, `project`: programs that run until they are told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from console.cli import context

if TYPE_CHECKING:
    from console.servers import Servers
    from console.settings import Reading

AppName: TypeAlias = Annotated[
    str, typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="The app, such as watch:app.")
]


def demo(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="End after so many seconds.", show_default=False)
    ] = None,
) -> None:
    """Watch this machine: own servers, real measurements, live findings, SQL to try."""
    from console import demo

    demo.show(context.given(ctx), seconds=seconds)


def up(
    ctx: typer.Context,
    *,
    app: AppName,
    folder: Annotated[
        Path, typer.Option("--dir", help="Where the servers keep what they store.")
    ] = Path(".vigil"),
) -> None:
    """Run own NATS and Postgres servers, a node and a projector, until Ctrl-C."""
    from console import apps, serving

    def read(servers: Servers) -> Reading:
        own = {"nats_url": servers.nats.url, "postgres_dsn": servers.postgres.dsn}
        return context.reading(ctx, **own)

    raise typer.Exit(serving.up(apps.load(app), folder, read))


def node(
    ctx: typer.Context,
    *,
    app: AppName,
    is_projecting: Annotated[
        bool, typer.Option("--project/--no-project", help="Take turns at projecting, too.")
    ] = True,
) -> None:
    """Run one engine node against existing servers, until SIGINT or SIGTERM.

    Exit code 3: some episode did not reach a barrier in time and is left to its lease. A
    second signal ends the node at once.
    """
    from console import apps, serving

    reading = context.reading(ctx)
    loaded = apps.load(app)
    raise typer.Exit(serving.serve(reading, app=loaded, is_projecting=is_projecting))


def project(ctx: typer.Context) -> None:
    """Run a projector by itself, until SIGINT or SIGTERM."""
    from console import serving

    raise typer.Exit(serving.serve(context.reading(ctx), app=None, is_projecting=True))
