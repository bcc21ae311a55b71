"""The console of one stack, as an ASGI app: screens, and the addresses beside them.

request ──▶ of ours? ──▶ who? ──▶ may? ──▶ read ──▶ drawn ──▶ framed
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from secrets import token_urlsafe
from typing import Final

import msgspec
import structlog
from htpy import a, p
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from engine.people.identity import Identity
from vigil.client import Client
from vigil.errors import Mistake, NotFound, ServerAway, VigilError
from vigil.web import assets, layout
from vigil.web.layout import PageFrame
from vigil.web.live import LivePages
from vigil.web.policy import content_policy
from vigil.web.positions import NOWHERE, RowsPosition, count_waiting, read_position
from vigil.web.protect import Protected
from vigil.web.screen import Drawn, PageRequest, Screen, address
from vigil.web.table import SCREENS

log = structlog.get_logger("vigil.console")

THEME: Final = "vigil_theme"
"""The cookie of who has chosen light or dark."""

SAID: Final = "vigil_said"
"""The cookie with what became of an order, for the page after it."""

EVENTS: Final = "text/event-stream"

Identify = Callable[[Request], Awaitable[Identity | None]]
"""Returns who sends a request; None: nobody knows."""


@dataclass
class Console:
    """The console of one stack."""

    client: Client
    identify: Identify

    def __post_init__(self) -> None:
        self.live = LivePages(self._read_number)

    async def _read_number(self) -> int:
        return (await read_position(self.client)).number

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all screens, and those beside them."""
        screens = [Route(each.path, partial(self._shown, each)) for each in SCREENS]
        return [*screens, Route(f"{assets.FOLDER}/{{digest}}/{{name}}", _asset)]

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Draw what is watched for as long as the app runs."""
        drawing = asyncio.create_task(self.live.run())
        try:
            yield
        finally:
            self.live.end()
            await drawing

    async def _shown(self, screen: Screen, request: Request) -> Response:
        identity = await self.identify(request)
        if identity is None:
            there = address(request.url.path, **dict(request.query_params))
            return RedirectResponse(address("/login", to=there), status_code=303)
        if not identity.role.includes(screen.role):  # guard: screen-for-its-role
            says = f"this page is for the role {screen.role.value}; you are {identity.role.value}"
            return await self._failed(request, identity, "Not for you", says, status=403)
        asked = PageRequest(
            path=request.url.path,
            words=dict(request.path_params),
            filters={
                name: text
                for name, text in request.query_params.items()
                if text and name in {*screen.filters, "at"}
            },
            role=identity.role,
            now=self.client.connections.clock.now(),
        )
        if EVENTS in request.headers.get("accept", ""):
            return self._watched(screen, asked, request)
        try:
            position = await read_position(self.client)
            drawn = await screen.draw(self.client, asked)
            waiting = await count_waiting(self.client)
        except VigilError as error:
            return await self._refused(request, identity, error)
        live = address(asked.path, **dict(asked.filters)) if screen.is_live else ""
        frame = self._frame(
            request, identity, screen.section, live=live, position=position, waiting=waiting
        )
        return _html(layout.page(frame, drawn), frame.nonce)

    def _watched(self, screen: Screen, asked: PageRequest, request: Request) -> Response:
        """Return what becomes of a page, for as long as it is watched."""
        if not screen.is_live:
            raise HTTPException(406, "this page does not change by itself")
        key = f"{asked.role} {address(asked.path, **dict(asked.filters))}"
        if not self.live.has_room(key):
            raise HTTPException(503, "too many pages are watched", {"retry-after": "30"})
        after = request.headers.get("last-event-id") or request.query_params.get("seq", "0")
        stream = self.live.watch(
            key,
            partial(self._drawn_now, screen, asked),
            after=int(after) if after.isdecimal() else 0,
        )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream, media_type=EVENTS, headers=headers)

    async def _drawn_now(self, screen: Screen, asked: PageRequest) -> Drawn:
        now = self.client.connections.clock.now()
        return await screen.draw(self.client, msgspec.structs.replace(asked, now=now))

    async def _refused(self, request: Request, identity: Identity, error: VigilError) -> Response:
        match error:
            case NotFound():
                heading, status = "There is no such thing", 404
            case Mistake():
                heading, status = "That cannot be", 400
            case ServerAway():
                heading, status = "A server is away", 503
            case _:
                heading, status = "That did not work", 409
        return await self._failed(request, identity, heading, str(error), status=status)

    async def _failed(
        self, request: Request, identity: Identity, heading: str, says: str, *, status: int
    ) -> Response:
        frame = self._frame(request, identity, "")
        drawn = Drawn(title=heading, parts={"why": p[says], "back": p[a(href="/")["Overview"]]})
        return _html(layout.page(frame, drawn), frame.nonce, status=status)

    def _frame(
        self,
        request: Request,
        identity: Identity,
        section: str,
        *,
        live: str = "",
        position: RowsPosition = NOWHERE,
        waiting: Mapping[str, int] | None = None,
    ) -> PageFrame:
        theme = request.cookies.get(THEME, "")
        return PageFrame(
            stack=self.client.stack.name,
            identity=identity,
            section=section,
            theme=theme if theme in {"light", "dark"} else "",
            nonce=token_urlsafe(16),
            assets=assets.addresses(),
            position=position,
            waiting=waiting or {},
            live=live,
            said=request.cookies.get(SAID, ""),
        )


def _html(page: object, nonce: str, *, status: int = 200) -> HTMLResponse:
    response = HTMLResponse(str(page), status_code=status)
    response.headers["content-security-policy"] = content_policy(nonce)
    response.headers["cache-control"] = "no-cache, private"
    response.headers["vary"] = "accept, cookie"
    response.delete_cookie(SAID)
    return response


async def _asset(request: Request) -> Response:
    found = assets.asset(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    return Response(
        found.content, media_type=found.media_type, headers={"cache-control": assets.KEPT}
    )


def console(client: Client, identify: Identify, *, origin: str = "") -> Starlette:
    """Return the console of the client's stack, for `uvicorn`.

    Args:
        identify: says who sends a request.
        origin: where people find it, such as `https://vigil.example`, if a proxy stands before it.
    """
    made = Console(client, identify)
    app = Starlette(routes=made.routes(), lifespan=made.running)
    app.add_middleware(Protected, origin=origin)
    return app
