"""Signing in and out, and who sends a request.

name and password, or a link that was printed ──▶ a session ──▶ a cookie that no script sees
a token ──▶ `Authorization: Bearer`, which a page of others cannot send along
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from htpy import Node, a, button, code, form, label, p, small
from htpy import input as entry
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from engine.people.identity import Identity
from engine.people.sign_in import SignedIn
from vigil.client import Client
from vigil.errors import NotSignedIn, VigilError
from vigil.web.answers import Answers
from vigil.web.forms import read_form
from vigil.web.policy import local_path
from vigil.web.said import NOT_SIGNED_IN, SILENCE, Said
from vigil.web.screen import address

SESSION: Final = "vigil_session"
"""The cookie of who has signed in."""

HOST_SESSION: Final = "__Host-vigil_session"
"""The same where the console is found by HTTPS: browsers send it to this host alone."""

BEARER: Final = "bearer "

FIRST_ADMIN: Final = "vigil users add NAME --role admin"


@dataclass(frozen=True)
class Sessions:
    """Who sends a request, by the sessions and tokens of the stack."""

    client: Client
    is_secure: bool
    """Whether people find the console by HTTPS, maybe of a proxy."""

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return HOST_SESSION if self.is_secure else SESSION

    async def __call__(self, request: Request) -> Identity | None:
        """Return who sends a request; None: nobody that may do anything."""
        said = request.headers.get("authorization", "")
        if said:  # guard: token-before-session
            is_bearer = said[: len(BEARER)].lower() == BEARER
            return await self.client.people.identify(said[len(BEARER) :]) if is_bearer else None
        secret = request.cookies.get(self.cookie, "")
        return await self.client.people.identify(secret) if secret else None


@dataclass(frozen=True)
class SignIn:
    """The pages for who has not signed in, and the way out."""

    sessions: Sessions
    answers: Answers
    oidc: str = ""
    """What the button for a login elsewhere says; empty: there is none."""

    def routes(self) -> list[BaseRoute]:
        """Return its addresses."""
        return [
            Route("/login", self._asked, methods=["GET"]),
            Route("/login", self._given, methods=["POST"]),
            Route("/link", self._link, methods=["GET"]),
            Route("/link", self._followed, methods=["POST"]),
            Route("/do/sign_out", self._ended, methods=["POST"]),
        ]

    async def _asked(self, request: Request) -> Response:
        return self._form(request, to=local_path(request.query_params.get("to", "/")))

    def _form(
        self, request: Request, *, to: str, name: str = "", why: str = "", status: int = 200
    ) -> Response:
        elsewhere: Node = None
        if self.oidc:
            elsewhere = a(".btn", href=address("/login/oidc", to=to))[self.oidc]
        return self.answers.bare(
            request,
            "Sign in",
            form(".form", method="post", action="/login")[
                label[
                    "Name",
                    entry(name="name", value=name or None, autocomplete="username", required=True),
                ],
                label[
                    "Password",
                    entry(
                        name="password",
                        type="password",
                        autocomplete="current-password",
                        required=True,
                    ),
                ],
                entry(type="hidden", name="to", value=to),
                button(".primary", type="submit")["Sign in"],
            ],
            elsewhere,
            p(".muted")[small["The first admin is made by ", code[FIRST_ADMIN], "."]],
            said=Said(why, NOT_SIGNED_IN) if why else SILENCE,
            status=status,
        )

    async def _given(self, request: Request) -> Response:
        said = await read_form(request)
        to, name = local_path(said.get("to", "/")), said.get("name", "")
        try:
            signed = await self.sessions.client.people.sign_in(
                name, said.get("password", ""), **origin_of(request)
            )
        except NotSignedIn as error:
            return self._form(request, to=to, name=name, why=str(error), status=401)
        except VigilError as error:
            return self._form(request, to=to, name=name, why=str(error), status=503)
        return begun(self.sessions, signed, to)

    async def _link(self, request: Request) -> Response:
        """Show a button: what looks at links ahead of people must not use them up."""
        return self.answers.bare(
            request,
            "Welcome",
            form(".form", method="post", action="/link")[
                entry(type="hidden", name="secret", value=request.query_params.get("secret", "")),
                button(".primary", type="submit", autofocus=True)["Open the console"],
            ],
            p(".muted")[small["The link works once, for ten minutes."]],
        )

    async def _followed(self, request: Request) -> Response:
        said = await read_form(request)
        try:
            signed = await self.sessions.client.people.sign_in_by_link(
                said.get("secret", ""), **origin_of(request)
            )
        except VigilError as error:
            return self._form(request, to="/", why=str(error), status=401)
        return begun(self.sessions, signed, "/")

    async def _ended(self, request: Request) -> Response:
        await self.sessions.client.people.sign_out(request.cookies.get(self.sessions.cookie, ""))
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(
            self.sessions.cookie, httponly=True, samesite="lax", secure=self.sessions.is_secure
        )
        return response


def begun(sessions: Sessions, signed: SignedIn, to: str) -> Response:
    """Return what leads somebody who has signed in to a page, and has the browser know it."""
    response = RedirectResponse(to, status_code=303)
    response.set_cookie(
        sessions.cookie,
        signed.secret,
        expires=signed.expires_at,
        httponly=True,
        samesite="lax",
        secure=sessions.is_secure,
    )
    return response


def origin_of(request: Request) -> dict[str, str]:
    """Return from where somebody signs in, as calls of the client take it."""
    host = request.client.host if request.client is not None else ""
    return {"address": host, "agent": request.headers.get("user-agent", "")}
