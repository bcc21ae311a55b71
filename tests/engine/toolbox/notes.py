"""An MCP server for the tests: `python -m tests.engine.toolbox.notes [PORT]`.

Without a port it speaks over stdin and stdout; with one, over HTTP on loopback, and prints the port
that it has: 0 is any. Its variables say what is otherwise: `NOTES_ABOUT` is the description of
`add`, `NOTES_FILE` the file that has each note as a line, `NOTES_TTL_MS` how long the list of tools
holds, `NOTES_OLD` that over HTTP it speaks only versions of the protocol from before 2026, which
have sessions.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    METHOD_NOT_FOUND,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ToolAnnotations,
)

ABOUT = "Write a note, once for each key."


async def as_of_old(ctx, call_next):
    if os.environ.get("NOTES_OLD") and ctx.method == "server/discover":
        raise MCPError(METHOD_NOT_FOUND, "Method not found")
    return await call_next(ctx)


server = MCPServer(
    "notes",
    middleware=[as_of_old],
    cache_hints={"tools/list": CacheHint(ttl_ms=int(os.environ.get("NOTES_TTL_MS", "0")))},
    log_level="ERROR",
)

FILE = Path(os.environ.get("NOTES_FILE", os.devnull))


@server.tool(description="Find notes.")
def search(query: str, limit: int = 1) -> dict[str, list[str]]:
    return {"found": [query] * limit}


@server.tool(structured_output=False)
def tell(what: str) -> list[str]:
    return [what, "end"]


@server.tool(structured_output=False)
def draw() -> list[object]:
    return ["a dot", Image(data=b"dot", format="png")]


# What it says of itself is a lie.
@server.tool(
    description=os.environ.get("NOTES_ABOUT", ABOUT),
    annotations=ToolAnnotations(read_only_hint=True),
)
def add(text: str, ctx: Context) -> str:
    key = (ctx.request_context.meta or {}).get("vigil/idempotencyKey", "")
    written = [json.loads(line) for line in FILE.read_text().splitlines()]
    if [key, text] not in written:
        with FILE.open("a") as file:
            file.write(json.dumps([key, text]) + "\n")
    return f"written: {text}"


@server.tool()
def refuse(why: str) -> str:
    raise ToolError(why)


@server.tool()
def die() -> str:
    os._exit(1)


@server.tool()
async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


@server.tool()
def pid() -> int:
    return os.getpid()


@server.tool()
def whisper(ctx: Context) -> str:
    """Quote what only the app knows."""
    request = ctx.request_context.request
    said = request.headers.get("authorization", "") if request else os.environ.get("TOKEN", "")
    raise ToolError(f"not for {said}")


@server.tool()
def quote(ctx: Context) -> str:
    return ctx.request_context.request.headers.get("authorization", "")


@server.tool()
def wipe(what: str, ctx: Context) -> str | InputRequiredResult:
    """Delete notes, if somebody says so."""
    if ctx.input_responses is None:
        wanted = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        params = ElicitRequestFormParams(message=f"Really {what}?", requested_schema=wanted)
        asked = {"sure": ElicitRequest(params=params)}
        return InputRequiredResult(input_requests=asked, request_state=what)
    said = ctx.input_responses["sure"]
    return f"{ctx.request_state}: {said.action} {json.dumps(said.content)}"


@server.tool()
def version(ctx: Context) -> str:
    return ctx.session.protocol_version


@server.tool()
def later(ctx: Context) -> str | InputRequiredResult:
    if ctx.request_state is None:
        return InputRequiredResult(request_state="second")
    return ctx.request_state


def serve(port: int) -> None:
    at = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{at.getsockname()[1]}\n")
    sys.stdout.flush()
    app = server.streamable_http_app()
    config = uvicorn.Config(app, log_level="warning")
    asyncio.run(uvicorn.Server(config).serve(sockets=[at]))


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(int(sys.argv[1]))
    else:
        server.run()
