"""The console of one stack, as an ASGI app.

request ──▶ of ours? (protect) ──▶ who? (identify) ──▶ a page, a form, the API, an asset
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.people.identity import Identity
from vigil.client import Client
from vigil.errors import VigilError
from vigil.web import assets
from vigil.web.access.protect import Protected
from vigil.web.access.sign_in import Sessions, SignIn
from vigil.web.answers import Answers, change_theme
from vigil.web.api.problems import UNEXPECTED, answer_unexpected
from vigil.web.api.routes import routes as api_routes
from vigil.web.do import do
from vigil.web.pages import Pages
from vigil.web.webhooks.file import Webhooks

if TYPE_CHECKING:  # It needs the extra `oidc`.
    from vigil.web.oidc.provider import Provider

API: Final = "/api/v1"

MCP_PATHS: Final = ("/mcp", "/.well-known/")

NO_PAGE: Final = 404

Identify: TypeAlias = Callable[[Request], Awaitable[Identity | None]]
"""Returns who sends a request; None: nobody knows."""


class Identified:
    """Notes on a request who sends it, and the client that answers it."""

    def __init__(self, app: ASGIApp, *, client: Client, identify: Identify) -> None:
        self._app, self._client, self._identify = app, client, identify
        self._away_since: datetime | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with who sends it."""
        if scope["type"] == "http" and not scope["path"].startswith(assets.FOLDER):
            state = scope.setdefault("state", {})
            state["client"], state["identity"], state["away"] = self._client, None, ""
            try:
                state["identity"] = await self._identify(Request(scope))
                self._away_since = None
            except VigilError as error:
                self._away_since = self._away_since or self._client.connections.clock.now()
                state["away"], state["away_since"] = str(error), self._away_since
        await self._app(scope, receive, send)


@dataclass(frozen=True)
class ToldErrors:
    """Tells people of errors on a page, and programs as the API does."""

    answers: Answers

    async def refused(self, request: Request, error: Exception) -> Response:
        """Answer what was refused: an address that is not there, a form that cannot be."""
        assert isinstance(error, HTTPException)
        if not _is_page(request):
            headers = error.headers
            return PlainTextResponse(error.detail, status_code=error.status_code, headers=headers)
        heading, says = "That cannot be", error.detail
        if error.status_code == NO_PAGE:
            heading, says = (
                "There is no such page",
                f"nothing of the console is at {request.url.path}",
            )
        return self.answers.failed(request, heading, says, status=error.status_code)

    async def unexpected(self, request: Request, error: Exception) -> Response:
        """Answer an error that nobody expected, without a word of it: the log has that."""
        if not _is_page(request):
            return await answer_unexpected(request, error)
        return self.answers.failed(request, "Something is broken", UNEXPECTED, status=500)


class McpMount(Mount):
    """The MCP server, at its own paths: whatever else there is not is told as the console does."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for the server."""
        if not scope["path"].startswith(MCP_PATHS):
            return Match.NONE, {}
        return super().matches(scope)


def _is_page(request: Request) -> bool:
    is_api = request.url.path.startswith(API)
    return not is_api and "text/html" in request.headers.get("accept", "")


def console(
    client: Client,
    *,
    origin: str = "",
    identify: Identify | None = None,
    webhooks: Webhooks | None = None,
    mcp: Starlette | None = None,
    oidc: Provider | None = None,
) -> Starlette:
    """Return the console of the client's stack, for an ASGI server.

    Args:
        origin: where people find it, such as `https://vigil.example`, if a proxy stands before it.
        identify: says who sends a request; None: the sessions and tokens of the stack.
        webhooks: what `read_webhooks` returns: who else may send events, and how they read.
        mcp: what `vigil.mcp.http.asgi_app` returns, to stand at `/mcp`.
        oidc: who else vouches for people: what `vigil.web.oidc.provider.provider_in` returns.
    """
    answers = Answers(client)
    told = ToldErrors(answers)
    sessions = Sessions(client, is_secure=origin.startswith("https://"))
    pages = Pages(client, answers)
    routes: list[BaseRoute] = [
        *SignIn(sessions, answers, oidc="" if oidc is None else oidc.spec.label).routes(),
        *_elsewhere(sessions, answers, oidc, origin),
        Route("/do/theme", change_theme, methods=["POST"]),
        Route("/do/{operation}", do, methods=["POST"]),
        Mount(API, routes=api_routes(webhooks)),
        Route(f"{assets.FOLDER}/{{digest}}/{{name}}", _asset),
        *pages.routes(),
        *([] if mcp is None else [McpMount("/", mcp)]),
    ]

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as parts:
            await parts.enter_async_context(pages.running(app))
            if mcp is not None:
                await parts.enter_async_context(mcp.router.lifespan_context(mcp))
            yield

    app = Starlette(
        routes=routes,
        lifespan=running,
        exception_handlers={HTTPException: told.refused, Exception: told.unexpected},
    )
    app.add_middleware(Identified, client=client, identify=identify or sessions)
    app.add_middleware(Protected, origin=origin)
    return app


def _elsewhere(
    sessions: Sessions, answers: Answers, oidc: Provider | None, origin: str
) -> list[BaseRoute]:
    if oidc is None:
        return []
    from vigil.web.oidc.login import OidcLogin

    return OidcLogin(sessions, answers, oidc, origin).routes()


async def _asset(request: Request) -> Response:
    found = assets.asset(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    headers = {"cache-control": assets.KEPT}
    return Response(found.content, media_type=found.media_type, headers=headers)
