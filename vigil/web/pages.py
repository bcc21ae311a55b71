"""The screens, as addresses: read, drawn and framed; or watched.

request ──▶ who? ──▶ may? ──▶ read ──▶ drawn ──▶ framed
                               └──▶ watched: drawn for all that watch
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import quote

import anyio
import structlog
from htpy import div, p
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from engine.people.identity import Identity, Role
from engine.runtime.gather import together
from streams.model.people import SavedView
from vigil.client import Client
from vigil.errors import Mistake, NotFound, ServerAway, VigilError, one_line
from vigil.web.answers import Answers
from vigil.web.drawing.parts import sentence
from vigil.web.forms import read_form
from vigil.web.live import GREETING, LivePages, away_words, message
from vigil.web.past import AGO, HOUR_S, OF, PAST_S, time_of
from vigil.web.positions import NOWHERE, count_waiting, read_number, read_position
from vigil.web.screen import AT, Drawn, PageRequest, Screen, address
from vigil.web.table import SCREENS

log = structlog.get_logger("vigil.console")

EVENTS: Final = "text/event-stream"

STREAM: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""The headers of what a page tells while it is watched: no proxy keeps any of it back."""


ASK_AGAIN_S: Final = 3.0
"""After what time who watches asks again while nobody can be recognized, in seconds."""


class Pages:
    """The screens of one stack."""

    def __init__(self, client: Client, answers: Answers) -> None:
        self.client, self.answers = client, answers
        self.live = LivePages(partial(read_number, client), now=client.connections.clock.now)

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

    async def _shown(self, screen: Screen, request: Request) -> Response:
        identity = request.state.identity
        if request.state.away:  # guard: away-leads-to-no-login
            return self._away(request)
        if not isinstance(identity, Identity):
            there = address(request.url.path, **dict(request.query_params))
            return RedirectResponse(address("/login", to=there), status_code=303)
        if not identity.role.includes(screen.role):  # guard: screen-for-its-role
            says = f"this page is for the role {screen.role}, and your role is {identity.role}"
            return self.answers.failed(request, "Not for you", says, status=403)
        try:
            asked = await self._asked(screen, request, identity)
            if AGO in request.query_params:
                there = _moved(asked, request.query_params)
                return RedirectResponse(there, status_code=303)
        except Mistake as error:
            return self.answers.refused(request, error)
        if asked.at is not None and screen.orders:  # guard: past-takes-no-orders
            says = "nobody orders anything in the past: go to now first"
            return self.answers.failed(request, "That cannot be", says, status=400)
        if EVENTS in request.headers.get("accept", ""):
            return self._watched(screen, asked, request)
        try:
            position = NOWHERE if asked.at else await read_position(self.client)
            # The position first, so that what is drawn is as new at least.
            (drawn, status), waiting, views = await together(
                self._drawn(screen, asked),
                count_waiting(self.client, at=asked.at),
                self._views(identity),
            )
        except VigilError as error:
            return self.answers.refused(request, error)
        is_live = screen.is_live and asked.at is None
        frame = self.answers.frame(
            request,
            section=screen.section,
            live=address(asked.path, **dict(asked.filters)) if is_live else "",
            position=position,
            waiting=waiting,
            views=views,
            asked=asked,
            has_past=screen.has_past,
        )
        return self.answers.page(frame, drawn, status=status)

    async def _drawn(self, screen: Screen, asked: PageRequest) -> tuple[Drawn, int]:
        """Return what is drawn, and its status: what was not there yet has a page, and its time."""
        try:
            return await screen.draw(self.client, asked), 200
        except NotFound as error:
            if asked.at is None or not screen.has_past:
                raise
            return _not_yet(asked.at, str(error)), 404

    async def _views(self, identity: Identity) -> Sequence[SavedView] | None:
        """Return the saved views of somebody; None while nobody knows: the page goes without."""
        try:
            return await self.client.people.views(by=identity.name)
        except ServerAway as error:  # guard: page-without-its-views
            log.info("saved views are not known", error=str(error))
            return None

    async def _asked(self, screen: Screen, request: Request, identity: Identity) -> PageRequest:
        said = request.query_params.items()
        known = {*screen.filters, AT}
        filters = {name: text for name, text in said if text and name in known}
        now = self.client.connections.clock.now()
        at = time_of(filters[AT], now) if AT in filters else None
        if request.method == "POST":
            filters = await read_form(request)
        return PageRequest(
            # A key may have any sign in it, and pages link to themselves.
            path=quote(request.scope["path"], safe="/:@"),
            words=dict(request.path_params),
            filters=filters,
            # Who looks at the past only looks.
            role=identity.role if at is None else Role.VIEWER,  # guard: past-is-only-looked-at
            now=at if at and screen.has_past else now,  # guard: ages-as-of-the-page
            asked_at=now,
            at=at,
        )

    def _watched(self, screen: Screen, asked: PageRequest, request: Request) -> Response:
        """Return what becomes of a page, for as long as it is watched."""
        if not screen.is_live or asked.at is not None:
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

    def _away(self, request: Request) -> Response:
        """Tell that nobody can be recognized for now; who watches asks again."""
        error = ServerAway(request.state.away)
        if EVENTS not in request.headers.get("accept", ""):
            return self.answers.refused(request, error)
        says = away_words(one_line(error), request.state.away_since)

        async def told_once() -> AsyncIterator[bytes]:
            yield GREETING + message(says, event="away")
            await self.client.connections.clock.sleep(ASK_AGAIN_S)

        return StreamingResponse(told_once(), media_type=EVENTS, headers=STREAM)

    async def _drawn_now(self, screen: Screen, asked: PageRequest) -> Drawn:
        now = self.client.connections.clock.now()
        return await screen.draw(self.client, replace(asked, now=now, asked_at=now))


def _not_yet(at: datetime, says: str) -> Drawn:
    """Return a page of a time past for something that was not there by then."""
    why = div(".card.why")[
        p["By then there was no such thing. Where it came later, it is there at later times."],
        p(".muted")[sentence(says)],
    ]
    return Drawn(title=f"Not yet at {at.astimezone(UTC):%H:%M:%S} UTC", parts={"why": why})


def _moved(asked: PageRequest, said: Mapping[str, str]) -> str:
    """Return the address of a page so many seconds ago; of none, that of now."""
    ago = said[AGO]
    seconds = min(int(ago), PAST_S + HOUR_S) if ago.isdecimal() else 0
    of = time_of(said[OF], asked.asked_at) if OF in said else asked.asked_at
    at = of - timedelta(seconds=seconds)
    return asked.link(at=at.isoformat(timespec="seconds") if seconds else None)
