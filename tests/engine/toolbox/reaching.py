"""How tests reach the MCP server `tests.engine.toolbox.notes`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from engine.app.actions import ToolCall
from engine.app.tools import CallContext
from engine.toolbox.mcp import mcp_server
from engine.usercode.tool_calls import ToolCalls
from streams.clock import Clock, SystemClock
from streams.memory import memory_ports

ROOT = Path(__file__).parents[3]

COMMAND = {"command": sys.executable, "args": ["-m", "tests.engine.toolbox.notes"]}

CTX = CallContext(
    actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="e:1"
)


def process(**env: Any) -> dict[str, Any]:
    """Return where a server is that is a process; `env` are its variables."""
    return {**COMMAND, "env": {"PYTHONPATH": str(ROOT), **env}}


@asynccontextmanager
async def calling(*, clock: Clock | None = None, **declared: Any) -> AsyncIterator[Any]:
    """Call tools as a node does, over one connection while the context lasts."""
    group = mcp_server(**declared)
    clock = clock or SystemClock()
    calls = ToolCalls(clock, memory_ports(clock=clock).gates)

    async def call(action: str, **args: Any) -> Any:
        return await calls.make(group.functions[action], ToolCall("notes", action, args), CTX)

    try:
        yield call
    finally:
        await calls.close()


class Serving:
    """The server over HTTP, which may be killed and started again at the same place."""

    def __init__(self, **env: Any) -> None:
        self.env = env
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def place(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/mcp"}

    async def start(self) -> None:
        """Start it; it listens when this returns."""
        command = [sys.executable, *COMMAND["args"], str(self.port)]
        env = {**os.environ, **self.env}
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=env, stdout=pipe
        )
        assert self._process.stdout is not None
        self.port = int(await self._process.stdout.readline())

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
