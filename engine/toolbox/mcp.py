"""`mcp_server`: the tools of an MCP server, as far as an app allows them.

What the package `mcp` brings is imported at the first call.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

import msgspec

from engine.app.actions import problem_of_declared
from engine.app.function_tool import (
    RATE_MAX,
    TIMEOUT_S_MAX,
    ToolGroup,
    problem_of_breaker,
    problem_of_number,
)
from engine.app.tools import RISKS, OfferedTool, Risk, ToolConnection, check_name
from engine.errors import BadTool
from engine.toolbox.mcp_declared import (
    PIN_BYTES,
    Endpoint,
    ListedTool,
    McpTool,
    Place,
    Process,
    ServerTool,
    Value,
)
from streams.clock import Clock, SystemClock

_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, eq=False)
class McpServer:
    """An MCP server; see `ToolServer`."""

    place: Place

    def connection(self, clock: Clock) -> ToolConnection:
        """Return the connection of one node."""
        from engine.toolbox.mcp_connection import McpConnection  # noqa: PLC0415 - it needs the extra

        return McpConnection(self.place, clock)

    async def tools(self) -> Mapping[str, ListedTool]:
        """Return all tools of the server as it lists them now; `ToolFailed`: it is not there."""
        from engine.toolbox.mcp_connection import McpConnection  # noqa: PLC0415 - it needs the extra

        connection = McpConnection(self.place, SystemClock())
        try:
            return await connection.tools()
        finally:
            await connection.close()


class McpTools(ToolGroup):
    """The tools of an MCP server that an app allows."""

    def __init__(self, tools: Mapping[str, ServerTool]) -> None:
        """Serve each action by its tool."""
        super().__init__(tools)
        self._tools = tools

    def offered(self, capability: str) -> tuple[OfferedTool, ...]:
        """Return the tools for `toolset` or `plan_of`, in the order in which they are allowed.

        `capability`: what the app calls the server in its tools: with `tools={"notes": notes}`,
            `notes.offered("notes")` are `notes_search` and others to a model, which gets to know
            them by what stands in the app, and calls none that has changed.

        Raises `BadTool` if one has no `input_schema`, or may ask.
        """
        return tuple(each.offered(capability) for each in self._tools.values())


def mcp_server(
    *,
    tools: Mapping[str, McpTool | Risk],
    command: str = "",
    args: Sequence[str] = (),
    env: Mapping[str, Value] | None = None,
    url: str = "",
    headers: Mapping[str, Value] | None = None,
    timeout_s: float = 60.0,
    tls: ssl.SSLContext | None = None,
) -> McpTools:
    """Return the tools of an MCP server that an app allows, for its dict of tools.

        Actor("monitor", tools={"github": mcp_server(url="https://…", tools={"search": "read"})})

    A strategy calls them by name: `await ctx.call("github.search", query="…")`. The arguments are
    checked against the tool's input schema first. The result is the structured content of the
    answer, else its text, or a list of its parts if there is more than text. An answer that is an
    error fails as `tool_failed`. What the server says is data, and may be wrong or hostile.

    A node opens one connection to the server at the first call, opens it again after it broke, and
    closes it when the node stops. It needs the extra `mcp`.

    Args:
        tools: the tools that may be called: what the app calls each → `McpTool(…)`, or its risk
            alone, such as `"read"`. All others are not there.
        command: a program to start, which is the server, and speaks over stdin and stdout.
        args: its arguments.
        env: its variables beside PATH, HOME, USER and the like; a value may be a function that
            returns it, such as `env("TOKEN")`, and is then a secret.
        url: or the address of a server over streamable HTTP.
        headers: sent with each request to it; stored nowhere.
        timeout_s: for a whole call, unless its tool says otherwise.
        tls: whom to trust; None: the public authorities.

    Raises `BadTool` if a value cannot work, or if the extra is missing.
    """
    if find_spec("mcp") is None:  # guard: missing-extra-told
        raise _bad("it needs the package mcp: pip install 'vigil-engine[mcp]'")
    place = _place(command, url, args=args, env=env or {}, headers=headers or {}, tls=tls)
    allowed = {name: _allowed(name, each) for name, each in tools.items()}
    if not allowed:
        raise _bad('tools: none; name those that may be called, such as {"search": "read"}')
    given: object = timeout_s
    # guard: mcp-calls-have-time-limit
    if given is None or problem_of_number(given, most=TIMEOUT_S_MAX):
        raise _bad(f"timeout_s: {given!r} is not a number over 0, up to {TIMEOUT_S_MAX:,g}")
    server = McpServer(place)
    return McpTools(
        {
            key: ServerTool(
                action=key,
                name=each.name or key,
                allowed=each,
                place=place,
                server=server,
                side_effect=each.risk != "read",  # guard: risk-is-side-effect
                idempotent=each.idempotent,
                timeout_s=timeout_s if each.timeout_s is None else each.timeout_s,
                retries=each.retries,
                rate_per_s=each.rate_per_s,
                breaker=each.breaker,
            )
            for key, each in allowed.items()
        }
    )


def _bad(problem: str) -> BadTool:
    return BadTool("mcp_server()", problem)


def _place(
    command: str,
    url: str,
    *,
    args: Sequence[str],
    env: Mapping[str, Value],
    headers: Mapping[str, Value],
    tls: ssl.SSLContext | None,
) -> Place:
    if bool(command) == bool(url):
        raise _bad("give a command, or a url, and not both")
    if command:
        if headers or tls is not None:
            raise _bad("headers and tls are for a url")
        if isinstance(args, str):
            raise _bad(f"args: {args!r} is not a list of arguments")
        return Process(command, tuple(args), dict(env))
    if args or env:
        raise _bad("args and env are for a command")
    if problem := _problem_of_url(url):
        raise _bad(f"url: {problem}")
    return Endpoint(url, dict(headers), tls)


def _problem_of_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"not a URL: {error}"
    if parts.scheme not in {"http", "https"} or not has_host:
        return "not a URL that begins with https:// or http:// and a host"
    if parts.username or parts.password:  # It is in errors and logs.
        return "it has a password; give that in headers"
    return ""


def _allowed(key: str, given: McpTool | Risk) -> McpTool:
    """Return what is allowed of the tool `key`, or raise `BadTool`."""
    try:
        check_name(key, of="a tool")
    except ValueError as error:
        raise _bad(f'tools: {error}; write {{"…": McpTool(…, name={key!r})}}') from error
    tool = given if isinstance(given, McpTool) else McpTool(given)
    if tool.risk not in RISKS:
        known = ", ".join(RISKS)
        raise _bad(f"tools: {key!r}: the risk {tool.risk!r} is none of {known}")
    if tool.pin and (len(tool.pin) != 2 * PIN_BYTES or set(tool.pin) - _HEX):
        raise _bad(f"tools: {key!r}: pin: {tool.pin!r} is not {2 * PIN_BYTES} hex digits")
    for problem in (problem_of_declared(tool.retries), *_problems_of_limits(tool)):
        if problem:
            raise _bad(f"tools: {key!r}: {problem}")
    if tool.retries is not None and tool.risk != "read" and not tool.idempotent:
        problem = "retries: a side effect is repeated only with idempotent=True"
        raise _bad(f"tools: {key!r}: {problem}")
    return _described(key, tool)


def _described(key: str, tool: McpTool) -> McpTool:
    """Return `tool` with the pin of what models are told of it, or raise `BadTool`."""
    given: object = tool.input_schema
    if given is None:
        if tool.description:
            raise _bad(f"tools: {key!r}: description: write the input_schema, too")
        return tool
    if not isinstance(given, dict):
        raise _bad(f"tools: {key!r}: input_schema: {given!r} is no JSON schema of an object")
    pin = ListedTool(tool.name or key, tool.description, given).pin
    if tool.pin not in {"", pin}:
        problem = f"pin: {tool.pin!r} is of another name, description or input_schema"
        raise _bad(f"tools: {key!r}: {problem}; leave it out")
    return msgspec.structs.replace(tool, pin=pin)  # guard: described-tool-is-pinned


def _problems_of_limits(tool: McpTool) -> Iterator[str]:
    numbers = {
        "timeout_s": problem_of_number(tool.timeout_s, most=TIMEOUT_S_MAX),
        "rate_per_s": problem_of_number(tool.rate_per_s, most=RATE_MAX),
        "breaker": problem_of_breaker(tool.breaker),
    }
    return (f"{name}: {problem}" for name, problem in numbers.items() if problem)
