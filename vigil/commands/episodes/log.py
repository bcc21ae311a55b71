"""`vigil episodes log` and `tail`: what an episode did, as people may see it."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer
from typer import Option

from streams.model.deltas import NO_DELTAS
from streams.model.triggers import LogStrategy
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.printing import tables
from vigil.printing.output import say_aside, show_rows
from vigil.printing.tail import TailPrinter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from vigil.client.episodes import EpisodeLog
    from vigil.printing.tables import Row

app = typer.Typer()

ShownStrategy: TypeAlias = Annotated[
    LogStrategy | None,
    Option("--strategy", help="How much to print, of what is kept; by default the episode's own."),
]


@app.command()
def log(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    strategy: ShownStrategy = None,
    is_json: options.IsJson = False,
) -> None:
    """Print what one episode did, in order, as far as its log strategy lets people see it."""

    async def read(client: Client) -> EpisodeLog:
        wanted = await named(client, episode_id, is_latest=is_latest)
        return await client.episodes.log(wanted, strategy=strategy)

    found = call(ctx, read)
    if is_json:
        show_rows(found.rows, (), is_json=True)
        return
    for each in found.rows:
        print(tables.printable(str(each["line"])))
    if found.why_none:
        say_aside(found.why_none)


@app.command()
def tail(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    strategy: ShownStrategy = None,
    timeout_s: options.Timeout = options.WAIT_S,
    has_deltas: Annotated[
        bool,
        Option(
            "--deltas/--no-deltas",
            help="Whether to print what models answer while they do, if NATS can be reached.",
        ),
    ] = True,
    is_json: Annotated[bool, Option("--json", help="Print JSON: a line each.")] = False,
) -> None:
    """Print what one episode did and does, until it ends: the log, as it grows.

    Between its lines, agents that are run with `stream=True` say what their models answer.
    """

    async def follow(client: Client) -> None:
        wanted = await named(client, episode_id, is_latest=is_latest)
        rows = client.episodes.tail(
            wanted, strategy=strategy, timeout_s=timeout_s, deltas=has_deltas
        )
        printer = TailPrinter(sys.stdout, is_in_place=sys.stdout.isatty())
        # What is open is closed in its order, also where nobody reads what is printed any more.
        async with aclosing(cast("AsyncGenerator[Row]", rows)):
            try:
                async for each in rows:
                    if each["kind"] == NO_DELTAS:
                        say_aside(str(each["line"]))
                    elif is_json:
                        print(tables.printable(tables.as_json_line(each)), flush=True)
                    else:
                        printer.show(each)
            finally:
                printer.close()

    call(ctx, follow)
