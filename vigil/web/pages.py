"""The screens, as addresses: read, drawn and framed; or watched.

request ──▶ who? ──▶ may? ──▶ read ──▶ drawn ──▶ framed
                               └──▶ watched: drawn for all that watch
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import quote

import anyio
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from engine.people.identity import Identity
from vigil.client import Client
from vigil.errors import VigilError
from vigil.web.answers import Answers
from vigil.web.forms import read_form
from vigil.web.live import LivePages
from vigil.web.positions import count_waiting, read_position
from vigil.web.screen import Drawn, PageRequest, Screen, address
from vigil.web.table import SCREENS

EVENTS: Final = "text/event-stream"

STREAM: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""The headers of what a page tells while it is watched: no proxy keeps any of it back."""


class Pages:
    """The screens of one stack."""

    def __init__(self, client: Client, answers: Answers) -> None:
        self.client, self.answers = client, answers
        self.live = LivePages(self._read_number)

    def routes(self) -> list[BaseRoute]:
        """Return the addresses of all screens."""
        return [
            Route(
                each.path,
                partial(self._shown, each),
                methods=["GET", "POST"] if each.is_form else ["GET"],
            )
            for each in SCREENS
        ]

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Draw what is watched for as long as the app runs."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.live.run)
            yield
            self.live.end()

    async def _read_number(self) -> int:
        return (await read_position(self.client)).number

    async def _shown(self, screen: Screen, request: Request) -> Response:
        identity = request.state.identity
        if not isinstance(identity, Identity):
            there = address(request.url.path, **dict(request.query_params))
            return RedirectResponse(address("/login", to=there), status_code=303)
        if not identity.role.includes(screen.role):  # guard: screen-for-its-role
            says = f"this page is for the role {screen.role}; you are {identity.role}"
            return self.answers.failed(request, "Not for you", says, status=403)
        asked = await self._asked(screen, request, identity)
        if EVENTS in request.headers.get("accept", ""):
            return self._watched(screen, asked, request)
        try:
            position = await read_position(self.client)
            drawn = await screen.draw(self.client, asked)
            waiting = await count_waiting(self.client)
        except VigilError as error:
            return self.answers.refused(request, error)
        live = address(asked.path, **dict(asked.filters)) if screen.is_live else ""
        frame = self.answers.frame(
            request, section=screen.section, live=live, position=position, waiting=waiting
        )
        return self.answers.page(frame, drawn)

    async def _asked(self, screen: Screen, request: Request, identity: Identity) -> PageRequest:
        said = request.query_params.items()
        filters = {name: text for name, text in said if text and name in screen.filters}
        if request.method == "POST":
            filters = await read_form(request)
        return PageRequest(
            # A key may have any sign in it, and pages link to themselves.
            path=quote(request.scope["path"], safe="/:@"),
            words=dict(request.path_params),
            filters=filters,
            role=identity.role,
            now=self.client.connections.clock.now(),
        )

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
        return StreamingResponse(stream, media_type=EVENTS, headers=STREAM)

    async def _drawn_now(self, screen: Screen, asked: PageRequest) -> Drawn:
        now = self.client.connections.clock.now()
        return await screen.draw(self.client, replace(asked, now=now))
