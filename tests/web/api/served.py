"""The API on a server of its own, at a free port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette

from tests.web.api.conftest import ADMIN
from vigil.web.api.stream import LAST_EVENT_ID

STARTED_LOOKS_MAX = 1_000


@asynccontextmanager
async def serving(app: Starlette, *, root_path: str = "") -> AsyncIterator[str]:
    """Serve `app`, and yield where; `root_path` is what a proxy leaves out before it."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", lifespan="off", root_path=root_path
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    running = asyncio.create_task(server.serve())
    for _ in range(STARTED_LOOKS_MAX):
        if server.started:
            break
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        server.should_exit = True
        server.force_exit = True
        await running


class Reader:
    """Reads server-sent events of a response, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, str]:
        """Return the next event, or a comment as `comment`."""
        found: dict[str, str] = {}
        async for line in self._lines:
            if not line:
                return found
            name, _, value = line.partition(": ")
            found[name or "comment"] = value
        return {"event": "closed"}


@asynccontextmanager
async def following(url: str, *, last_id: str = "", query: str = "") -> AsyncIterator[Reader]:
    """Follow the stream of events at an API."""
    headers = {**ADMIN, **({LAST_EVENT_ID: last_id} if last_id else {})}
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"{url}/events/stream{query}", headers=headers) as response,
    ):
        response.raise_for_status()
        yield Reader(response)
