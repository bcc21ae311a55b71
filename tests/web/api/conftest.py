"""The API in one process, asked by people and programs of every role and scope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.people.identity import Identity, Role
from streams.clock import Clock, SystemClock
from streams.memory import memory_ports
from streams.ports.all import Ports
from streams.subjects import Stack
from vigil.client import Client
from vigil.web.api.problems import answer_unexpected
from vigil.web.api.receive import CLOCK
from vigil.web.api.routes import routes
from vigil.web.webhooks.file import Webhooks

NAME: Final = "x-name"
ROLE: Final = "x-role"
TOKEN: Final = "x-token"
SCOPES: Final = "x-scopes"
AGENT: Final = "x-agent"
"""There, if the token is marked as an agent's."""
AWAY: Final = "x-away"
"""Why nobody can be recognized now."""

ADDRESS: Final = "http://api/api/v1"

ADMIN: Final = {ROLE: "admin"}


class ByHeader:
    """Says who asks as the headers do, and hands the client on."""

    def __init__(self, app: ASGIApp, *, client: Client) -> None:
        self._app, self._client = app, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["client"] = self._client
            scope["state"]["away"] = Request(scope).headers.get(AWAY, "")
            away = scope["state"]["away"]
            scope["state"]["identity"] = None if away else identity_of(Request(scope))
        await self._app(scope, receive, send)


def identity_of(request: Request) -> Identity | None:
    headers = request.headers
    if ROLE not in headers:
        return None
    scopes = headers.get(SCOPES)
    return Identity(
        name=headers.get(NAME, "ann"),
        role=Role(headers[ROLE]),
        token=headers.get(TOKEN, ""),
        scopes=None if scopes is None else frozenset(scopes.split()),
        is_agent=AGENT in headers,
    )


def api_on(client: Client, webhooks: Webhooks | None = None, *, clock: Clock = CLOCK) -> Starlette:
    """Return an app with the API alone."""
    return Starlette(
        routes=[Mount("/api/v1", routes=routes(webhooks, clock=clock))],
        middleware=[Middleware(ByHeader, client=client)],
        exception_handlers={Exception: answer_unexpected},
    )


def asking(app: Starlette, **headers: str) -> httpx.AsyncClient:
    """Return what asks an app, without a server."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=headers)


@pytest.fixture
def ports(stack: Stack) -> Ports:
    """The log of a stack, in memory."""
    return memory_ports(stack=stack, clock=SystemClock())


@pytest.fixture
async def client(ports: Ports) -> AsyncIterator[Client]:
    """A client of that stack, which has no rows to ask."""
    async with Client.on(ports, by="console") as client:
        yield client


@pytest.fixture
async def api(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """What asks the API as an admin, unless its headers say otherwise."""
    async with asking(api_on(client), **ADMIN) as sending:
        yield sending
