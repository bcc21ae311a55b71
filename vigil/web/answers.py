"""Pages as answers: with their frame, their policy, and what became of the order before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from htpy import Node, a, div, p
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from engine.people.identity import Identity, Role
from streams.model.people import SavedView
from vigil.client import Client
from vigil.errors import Mistake, NotFound, ServerAway, VigilError
from vigil.web import assets, past
from vigil.web.drawing import layout
from vigil.web.drawing.layout import PageFrame
from vigil.web.drawing.parts import sentence
from vigil.web.policy import came_from, content_policy
from vigil.web.positions import NOWHERE, RowsPosition
from vigil.web.said import SAID, SILENCE, Said, unquoted
from vigil.web.screen import AT, Drawn, PageRequest

THEME: Final = "vigil_theme"
"""The cookie of who has chosen light or dark."""

THEMES: Final = ("", "light", "dark")
"""As the system has it, and what else can be chosen, in turn."""

THEME_S: Final = 365 * 86_400

RETRY_S: Final = 3
"""How often a page that says that a server is away looks whether it is back, in seconds."""

AWAY: Final = 503

NOBODY: Final = Identity(name="", role=Role.VIEWER)


@dataclass(frozen=True)
class Answers:
    """Makes answers of pages."""

    client: Client

    def frame(
        self,
        request: Request,
        *,
        section: str = "",
        live: str = "",
        position: RowsPosition = NOWHERE,
        waiting: dict[str, int] | None = None,
        said: Said = SILENCE,
        views: Sequence[SavedView] | None = (),
        asked: PageRequest | None = None,
        has_past: bool = False,
        retry_s: int = 0,
    ) -> PageFrame:
        """Return what stands around a page."""
        theme = request.cookies.get(THEME, "")
        identity = request.state.identity
        return PageFrame(
            stack=self.client.stack.name,
            identity=identity if isinstance(identity, Identity) else NOBODY,
            section=section,
            theme=theme if theme in THEMES else "",
            nonce=token_urlsafe(16),
            assets=assets.addresses(),
            position=position,
            waiting=waiting or {},
            live=live,
            views=views,
            asked=asked,
            has_past=has_past,
            said=said if said.text else unquoted(request.cookies.get(SAID, "")),
            retry_s=retry_s,
        )

    def page(self, frame: PageFrame, drawn: Drawn, *, status: int = 200) -> Response:
        """Return a page with navigation."""
        page = str(layout.page(frame, drawn))
        at = frame.asked.filter(AT) if frame.asked else None
        return _html(past.linked(page, at) if at else page, frame, status)

    def bare(
        self,
        request: Request,
        heading: str,
        *inside: Node,
        said: Said = SILENCE,
        status: int = 200,
    ) -> Response:
        """Return a page without navigation."""
        frame = self.frame(request, said=said)
        return _html(str(layout.bare(frame, heading, *inside)), frame, status)

    def failed(self, request: Request, heading: str, says: str, *, status: int) -> Response:
        """Return a page that says what is wrong."""
        retry_s = RETRY_S if status == AWAY and request.method == "GET" else 0
        why = div(".card.why")[
            p[sentence(says)],
            bool(retry_s) and p(".muted")[f"This page looks again every {retry_s} seconds."],
            a(".btn", href="/")["To the overview"],
        ]
        drawn = Drawn(title=heading, parts={"why": why})
        return self.page(self.frame(request, retry_s=retry_s), drawn, status=status)

    def refused(self, request: Request, error: VigilError) -> Response:
        """Return a page that says why there is none."""
        match error:
            case NotFound():
                heading, status = "There is no such thing", 404
            case Mistake():
                heading, status = "That cannot be", 400
            case ServerAway():
                heading, status = "A server is away", AWAY
            case _:
                heading, status = "That did not work", 409
        return self.failed(request, heading, str(error), status=status)


def _html(page: str, frame: PageFrame, status: int) -> Response:
    response = HTMLResponse(page, status_code=status)
    response.headers["content-security-policy"] = content_policy(frame.nonce)
    response.headers["cache-control"] = "no-cache, private"
    response.headers["vary"] = "accept, cookie"
    if not frame.retry_s:  # What became of an order stays until there is a page again.
        response.delete_cookie(SAID)
    return response


async def change_theme(request: Request) -> Response:
    """Choose the next of light, dark, and what the system has."""
    now = request.cookies.get(THEME, "")
    at = THEMES.index(now) if now in THEMES else 0
    response = RedirectResponse(came_from(request), status_code=303)
    chosen = THEMES[(at + 1) % len(THEMES)]
    response.set_cookie(THEME, chosen, max_age=THEME_S, httponly=True, samesite="lax")
    return response
