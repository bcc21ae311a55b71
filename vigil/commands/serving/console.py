"""`vigil console`: the pages and the API of a stack, for browsers and programs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from vigil import options
from vigil.errors import Trouble
from vigil.settings import CONSOLE_PORT


def console(
    ctx: typer.Context,
    *,
    host: Annotated[
        str, Option(help="Where it listens; beyond this machine only once people can sign in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        Option(
            min=0,
            max=65_535,
            help=f"The port that it listens on, 0: a free one; by default {CONSOLE_PORT},"
            " or a free one if something else is there.",
            show_default=False,
        ),
    ] = None,
    origin: Annotated[
        str,
        Option(help="Where people find it if a proxy stands before it: https://vigil.example."),
    ] = "",
    webhooks: Annotated[
        Path | None, Option(help="A file that names who sends webhooks, and how they read.")
    ] = None,
    prints_link: Annotated[
        bool,
        Option("--link/--no-link", help="Whether to print a link that signs in once, as an admin."),
    ] = True,
    creates_stack: Annotated[
        bool, Option("--create-stack", help="Make the stack if there is none, as a node does.")
    ] = False,
) -> None:
    """Serve the pages and the JSON API of the stack, until SIGINT or SIGTERM."""
    require_extra()
    from vigil.web.serve import serve
    from vigil.web.webhooks.file import read_webhooks

    hooks = None if webhooks is None else read_webhooks(webhooks)
    serve(
        options.config(ctx),
        host=host,
        port=port,
        origin=origin,
        webhooks=hooks,
        prints_link=prints_link,
        creates_stack=creates_stack,
    )


def require_extra() -> None:
    """Raise `Trouble` if what the console needs is not installed."""
    from vigil.serving.beside import CONSOLE_NEEDS

    if any(find_spec(each) is None for each in CONSOLE_NEEDS):
        raise Trouble('the console needs the extra "web": pip install "vigil-engine[web]"')
