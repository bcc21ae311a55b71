"""`vigil mcp`: the tools of MCP servers that an app allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from vigil import options
from vigil.asking.connect import run
from vigil.errors import Trouble
from vigil.options import AppName, IsJson
from vigil.printing.output import show_rows
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.app.app import App
    from engine.toolbox.mcp import McpServer
    from engine.toolbox.mcp_declared import ListedTool, ServerTool

app = typer.Typer(help="MCP: pins of the tools of servers.", no_args_is_help=True)

COLUMNS: Final = ("server", "tool", "state", "risk")
"""What the table shows of each tool."""

CHANGED: Final = "changed"
MISSING: Final = "missing"
PINNED: Final = "as pinned"
UNPINNED: Final = "no pin"
NOT_ALLOWED: Final = "not allowed"

NO_RISK: Final = "read|change|destroy"
"""What stands for the risk of a tool that the app does not have."""


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
