"""How tests reach the server of a stack: by the SDK's own client, in this process or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client as McpClient
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitResult, Implementation, Request, Result

from engine.people.identity import Identity, Role
from engine.toolbox.mcp_tasks import TaskHandle, TaskState, state_of
from vigil.client import Client
from vigil.mcp.caller import ACT, READ, local_identity
from vigil.mcp.server import Serving, server_of
from vigil.mcp.tasks import OfTask

CONSOLE = "https://vigil.example.com"
INFO = Implementation(name="chat", version="1.2")


class KnowsTasks(ClientExtension):
    """Says that the client knows tasks, and keeps the handle of the newest one."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.handles: list[TaskHandle] = []

    def claims(self):
        async def resolve(handle: TaskHandle, _: Any) -> CallToolResult:
            self.handles.append(handle)
            return CallToolResult(content=[], is_error=True)

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]

    async def fired(self, mcp: McpClient, tool: str = "fire", **arguments: Any) -> str:
        """Call a tool whose answer is a task, and return its id."""
        before = len(self.handles)
        answer = await mcp.call_tool(tool, arguments)
        assert len(self.handles) == before + 1, answer.content
        return self.handles[-1].task_id


class CancelTask(Request[OfTask, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"


async def look(mcp: McpClient, task_id: str) -> TaskState:
    """Return how a task is, as a node of ours asks for it."""
    return await state_of(mcp.session, task_id)


async def cancel(mcp: McpClient, task_id: str) -> None:
    await mcp.session.send_request(CancelTask(params=OfTask(task_id=task_id)), Result)


def person(name: str = "bo", *, role: Role = Role.OPERATOR) -> Identity:
    return Identity(name=name, role=role)


def program(*scopes: str, name: str = "bo", role: Role = Role.OPERATOR) -> Identity:
    return Identity(name=name, role=role, token="t1", scopes=frozenset(scopes))


class Opener:
    """A person whose program opens pages: it keeps the addresses."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        del context
        self.urls.append(params.url)
        return ElicitResult(action="accept")


@asynccontextmanager
async def served(
    client: Client,
    identity: Identity | None = None,
    *,
    knows: KnowsTasks | None = None,
    opener: Any = None,
    mode: Any = "auto",
    **serving: Any,
) -> AsyncIterator[McpClient]:
    """Yield the SDK's client of a server of `client`, for `identity`, by default one that acts."""
    who = identity or local_identity("bo", [ACT])
    server = server_of(Serving(client=client, identity_of=lambda _: who, **serving))
    connecting = McpClient(
        server,
        client_info=INFO,
        extensions=[knows] if knows else [],
        elicitation_callback=opener,
        cache=None,
        mode=mode,
    )
    async with connecting as mcp:
        yield mcp


@asynccontextmanager
async def over_http(
    url: str,
    *,
    token: str = "",
    knows: KnowsTasks | None = None,
    transport: Any = None,
    mode: Any = "auto",
) -> AsyncIterator[McpClient]:
    """Yield the SDK's client of what listens at `url`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, transport=transport, trust_env=False) as http:
        over = streamable_http_client(url, http_client=http)
        connecting = McpClient(
            over, client_info=INFO, extensions=[knows] if knows else [], cache=None, mode=mode
        )
        async with connecting as mcp:
            yield mcp


def names(tools: Any) -> set[str]:
    return {each.name for each in tools.tools}


def text_of(answer: CallToolResult) -> str:
    return "".join(each.text for each in answer.content if each.type == "text")


READER = program(READ)
ACTOR = program(READ, ACT)
