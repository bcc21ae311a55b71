"""`vigil mcp`: the tools of MCP servers that an app allows; and the stack as such a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import typer

from vigil import options
from vigil.asking.connect import run
from vigil.errors import Mistake, Trouble
from vigil.options import AppName, IsJson
from vigil.printing.output import show_rows
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.app.app import App
    from engine.toolbox.mcp import McpServer
    from engine.toolbox.mcp_declared import ListedTool, ServerTool

app = typer.Typer(help="MCP: serve a stack, pins of the tools of servers.", no_args_is_help=True)

Allowed: TypeAlias = Literal["act"]
"""What else than reading is allowed."""

PORT_MAX: Final = 65_535

COLUMNS: Final = ("server", "tool", "state", "risk")
"""What the table shows of each tool."""

CHANGED: Final = "changed"
MISSING: Final = "missing"
PINNED: Final = "as pinned"
UNPINNED: Final = "no pin"
NOT_ALLOWED: Final = "not allowed"

MCP_MODULES: Final = ("mcp", "mcp_types", "pydantic", "starlette", "uvicorn")
"""What the extra `mcp` brings."""

NO_RISK: Final = "read|change|destroy"
"""What stands for the risk of a tool that the app does not have."""


@app.command()
def serve(
    ctx: typer.Context,
    *,
    address: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve over HTTP, on loopback, such as 127.0.0.1:8090; port 0: any. By default"
            " over standard input and output.",
        ),
    ] = None,
    allowed: Annotated[
        Allowed | None,
        typer.Option(
            "--allow", help="Offer tools that act, too: fire, publish, cancel and others."
        ),
    ] = None,
    is_agent: Annotated[
        bool,
        typer.Option("--agent", help="What acts is a dry run, unless the call says otherwise."),
    ] = False,
    console_url: Annotated[
        str,
        typer.Option(metavar="URL", help="Where people sign in to decide, such as the console's."),
    ] = "",
    typed: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:ATTRIBUTE",
            help="An app, so that its rules can be tried and definitions checked against it.",
        ),
    ] = None,
    by: options.By = None,
) -> None:
    """Serve the stack to agents and chats as an MCP server, until it is told to stop.

    Its tools read, unless --allow act is given. No tool approves anything: people do. Over HTTP
    everybody on this machine may use it. Log lines go to standard error.
    """
    import os
    import sys

    from vigil.serving import telemetry

    with needed("`vigil mcp serve`"):
        from vigil.mcp import run as serving
        from vigil.mcp.caller import ACT, local_identity

    config = options.config(ctx)
    plan = serving.ServerPlan(
        config=config,
        identity=local_identity(
            options.who(config, by), () if allowed is None else (ACT,), is_agent=is_agent
        ),
        typed=by,
        app=_loaded(typed),
        console_url=checked_url(console_url),
    )
    settings = config.settings
    telemetry.log_to(sys.stderr, form=settings.log, level=settings.log_level, node=config.node)
    telemetry.export(os.environ, node=config.node)
    if address is None:
        run(serving.serve_stdio(plan))
        return
    host, port = parse_address(address)
    run(serving.serve_http(plan, host, port))


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Say which extra `what` needs, if what that brings is not installed."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in MCP_MODULES:
            raise
        raise Trouble(
            f"{what} needs the package {package}", remedy="pip install 'vigil-engine[mcp]'"
        ) from error


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `text`, such as `127.0.0.1:8090` or `[::1]:0`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise Mistake(f"--http {text!r}: write HOST:PORT, such as 127.0.0.1:8090")
    return host.removeprefix("[").removesuffix("]"), int(port)


def checked_url(url: str) -> str:
    """Return the address of a console; `Mistake`: it can be none."""
    place = urlsplit(url)
    if url and (place.scheme not in {"http", "https"} or not place.hostname):
        raise Mistake(f"--console-url {url!r}: write http:// or https:// and a host")
    return url.rstrip("/")


def _loaded(name: str | None) -> App | None:
    import sys

    from vigil.serving.app import load

    if name is None:
        return None
    with redirect_stdout(sys.stderr):  # guard: app-prints-beside-protocol
        return load(name, option="--app")


@app.command()
def pins(
    ctx: typer.Context,
    *,
    typed: AppName = None,
    with_schemas: Annotated[
        bool,
        typer.Option(
            help="Print lines with descriptions and input schemas, by which agents know the tools."
        ),
    ] = False,
    is_json: IsJson = False,
) -> None:
    """Ask the MCP servers of an app for their tools, and print the pins that the app lacks.

    They are lines that allow the tools as they are now. Read a tool's description and input schema
    first, which --json prints: a model does what they say. The command fails if a tool that the app
    has pinned has changed, or if one is missing. It needs none of Vigil's servers, but what the
    servers of the app need, such as their secrets.
    """
    from vigil.serving.app import load

    name, option = options.app_name(ctx, typed, flag="")
    rows, away = run(_asked(load(name, option=option), with_schemas=with_schemas))
    if is_json:
        show_rows(rows, COLUMNS, is_json=True)
    elif rows:
        print_pins(rows, are_all_lacking=with_schemas)
    problems = [f"{each['server']}.{each['tool']} is {each['state']}" for each in _bad(rows)]
    if problems or away:
        raise Trouble(f"{name}: {'; '.join([*problems, *away])}")
    if not rows and not is_json:
        typer.echo(f"{name}: no tools of MCP servers")


def print_pins(rows: Sequence[Row], *, are_all_lacking: bool = False) -> None:
    """Print a table of tools, and below it the lines that allow those that are not as pinned."""
    show_rows(rows, COLUMNS, is_json=False)
    lacking = [
        each for each in rows if each["line"] and (are_all_lacking or each["state"] != PINNED)
    ]
    for server in dict.fromkeys(str(each["server"]) for each in lacking):
        lines = [f"    {each['line']}" for each in lacking if each["server"] == server]
        typer.echo("\n".join([f"\n{server}, as it is now:", *lines]))


def _bad(rows: Sequence[Row]) -> list[Row]:
    return [each for each in rows if each["state"] in {CHANGED, MISSING}]


async def _asked(app: App, *, with_schemas: bool) -> tuple[list[Row], list[str]]:
    """Return the tools of all servers, and why some servers are not to be had."""
    from engine.app.tools import ToolFailed

    rows, away = list[Row](), list[str]()
    for name, server, allowed in _servers(app):
        try:
            listed = await server.tools()
        except ToolFailed as failed:
            away.append(f"{name}: {failed}")
            continue
        rows += rows_of(name, allowed, listed, with_schemas=with_schemas)
    return rows, away


def _servers(app: App) -> Iterator[tuple[str, McpServer, list[ServerTool]]]:
    """Yield each MCP server of an app, by the name of its tools, with those that it allows."""
    from engine.app.function_tool import ToolGroup
    from engine.toolbox.mcp import McpServer
    from engine.toolbox.mcp_declared import ServerTool

    groups = [app.tools, *(each.tools for each in app.actors.values())]
    seen = set[tuple[str, int]]()
    for name, group in (each for tools in groups for each in tools.items()):
        found = group.functions.values() if isinstance(group, ToolGroup) else ()
        allowed = [each for each in found if isinstance(each, ServerTool)]
        server = allowed[0].server if allowed else None
        if isinstance(server, McpServer) and (name, id(server)) not in seen:
            seen.add((name, id(server)))
            yield name, server, allowed


def rows_of(
    name: str,
    allowed: Sequence[ServerTool],
    listed: Mapping[str, ListedTool],
    *,
    with_schemas: bool = False,
) -> list[Row]:
    """Return a row for each tool that an app allows, and for each other one of the server."""
    row = partial(_row, name, with_schemas=with_schemas)
    rows = [row(each, listed.get(each.name)) for each in allowed]
    others = listed.keys() - {each.name for each in allowed}
    return rows + [row(None, listed[each]) for each in sorted(others)]


def _row(
    name: str, tool: ServerTool | None, listed: ListedTool | None, *, with_schemas: bool
) -> Row:
    from engine.toolbox.mcp_declared import pin_line

    line = ""
    if listed is not None:
        action, risk = (tool.action, tool.risk) if tool else (listed.name, NO_RISK)
        line = pin_line(listed, action=action, risk=risk, has_schema=with_schemas)
    return {
        "server": name,
        "tool": tool.action if tool else listed.name if listed else "",
        "state": _state(tool, listed),
        "line": line,
        "pin": listed.pin if listed else None,
        "pinned": tool.allowed.pin or None if tool else None,
        "risk": tool.risk if tool else None,
        "description": listed.description if listed else None,
        "input_schema": listed.input_schema if listed else None,
    }


def _state(tool: ServerTool | None, listed: ListedTool | None) -> str:
    if tool is None:
        return NOT_ALLOWED
    if listed is None:
        return MISSING
    if not tool.allowed.pin:
        return UNPINNED
    return PINNED if tool.allowed.pin == listed.pin else CHANGED
