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
from collections import Counter
from pathlib import Path
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    RequestParams,
    ToolAnnotations,
)

ABOUT = "Write a note, once for each key."


async def as_of_old(ctx, call_next):
    if os.environ.get("NOTES_OLD") and ctx.method == "server/discover":
        raise MCPError(METHOD_NOT_FOUND, "Method not found")
    return await call_next(ctx)


class OfTask(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class Tasks(Extension):
    """Lets calls of `build` go on as tasks, which are done at the third look."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self.given: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Any] = {}

    def methods(self):
        return [
            MethodBinding("tasks/get", OfTask, self.get),
            MethodBinding("tasks/update", OfTask, self.update),
        ]

    async def get(self, ctx, params):
        del ctx
        given = self.given.get(params.task_id)
        if given is None:
            raise MCPError(INVALID_PARAMS, f"there is no task {params.task_id}")
        self.looks[params.task_id] += 1
        return {"resultType": "complete", **self.state(params.task_id, given)}

    async def update(self, ctx, params):
        del ctx
        self.answers[params.task_id] = params.input_responses["sure"]
        return {"resultType": "complete"}

    def state(self, id_, given):
        of_all = {"taskId": id_, "ttlMs": None, "pollIntervalMs": 10}
        if self.looks[id_] < 3:
            return {**of_all, "status": "working"}
        if given.get("fails"):
            return {**of_all, "status": "failed", "error": {"code": 1, "message": "no disk"}}
        if given.get("asks") and id_ not in self.answers:
            wanted = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
            asked = {"mode": "form", "message": "Really build?", "requestedSchema": wanted}
            asks = {"sure": {"method": "elicitation/create", "params": asked}}
            return {**of_all, "status": "input_required", "inputRequests": asks}
        said = f"built {given['what']}, {json.dumps(self.answers.get(id_))}"
        result = {"content": [{"type": "text", "text": said}], "isError": False}
        return {**of_all, "status": "completed", "result": {**result, "resultType": "complete"}}

    async def intercept_tool_call(self, params, ctx, call_next):
        if params.name != "build":
            return await call_next(ctx)
        id_ = f"t{len(self.given) + 1}"
        self.given[id_] = params.arguments
        state = self.state(id_, params.arguments)
        return {"resultType": "task", **state}


server = MCPServer(
    "notes",
    middleware=[as_of_old],
    extensions=[Tasks()],
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


@server.tool(structured_output=False)
def build(what: str, asks: bool = False, fails: bool = False) -> str:
    """Build something, as a task."""
    return "nobody knows tasks"


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
