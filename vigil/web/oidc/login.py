"""`/login/oidc`: to the provider and back.

/login/oidc ──▶ the provider asks who it is ──▶ /login/oidc/callback ──▶ a session

What ties the two together is in a cookie of the browser that has begun it: nobody can finish in one
browser what was begun in another. The code is bound to it twice, by the state and by PKCE, and what
the provider says by the nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from streams.json import UNDECODABLE
from vigil.errors import NotSignedIn, VigilError
from vigil.web.access.sign_in import Sessions, begun, origin_of
from vigil.web.answers import Answers
from vigil.web.oidc.provider import Provider
from vigil.web.oidc.settings import vouched_by
from vigil.web.policy import local_path

BEGUN: Final = "vigil_oidc"
"""The cookie of a login that has begun."""

HOST_BEGUN: Final = "__Host-vigil_oidc"
"""The same by HTTPS; see `vigil.web.access.sign_in`."""

BEGUN_S: Final = 600
"""How long one may take at the provider, in seconds."""

RANDOM_BYTES: Final = 32

COOKIE_CHARS_MAX: Final = 4_096

CODE_CHARS_MAX: Final = 4_096

_NOT_BEGUN: Final = "no login was begun in this browser, or too long ago"


class BegunLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What the browser keeps of a login that has begun."""

    state: str
    nonce: str
    verifier: str
    to: str
    """The page to go to in the end."""


@dataclass(frozen=True)
class OidcLogin:
    """The two addresses of a login at the provider."""

    sessions: Sessions
    answers: Answers
    provider: Provider
    origin: str = ""
    """Where people find the console, if a proxy stands before it."""

    def routes(self) -> list[BaseRoute]:
        """Return its addresses."""
        return [
            Route("/login/oidc", self._begin, methods=["GET"]),
            Route("/login/oidc/callback", self._end, methods=["GET"]),
        ]

    @property
    def _cookie(self) -> str:
        return HOST_BEGUN if self.sessions.is_secure else BEGUN

    def _redirect_uri(self, request: Request) -> str:
        here = self.origin or str(request.base_url)
        return f"{here.rstrip('/')}/login/oidc/callback"

    async def _begin(self, request: Request) -> Response:
        try:
            found = await self.provider.discovered()
        except VigilError as error:
            return self._failed(request, error)
        login = BegunLogin(
            state=secrets.token_urlsafe(RANDOM_BYTES),
            nonce=secrets.token_urlsafe(RANDOM_BYTES),
            verifier=secrets.token_urlsafe(RANDOM_BYTES),
            to=local_path(request.query_params.get("to", "/")),
        )
        spec = self.provider.spec
        asked = {
            "response_type": "code",
            "client_id": spec.client_id,
            "redirect_uri": self._redirect_uri(request),
            "scope": " ".join(spec.scopes),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": challenge_of(login.verifier),
            "code_challenge_method": "S256",
        }
        there = found.authorization_endpoint
        joined = "&" if urlsplit(there).query else "?"
        response = RedirectResponse(f"{there}{joined}{urlencode(asked)}", status_code=303)
        response.set_cookie(
            self._cookie,
            _written(login),
            max_age=BEGUN_S,
            httponly=True,
            samesite="lax",
            secure=self.sessions.is_secure,
        )
        return response

    async def _end(self, request: Request) -> Response:
        try:
            login = self._begun(request)
            code = self._code(request)
            claims = await self.provider.claims(
                code,
                verifier=login.verifier,
                nonce=login.nonce,
                redirect_uri=self._redirect_uri(request),
            )
            vouched = vouched_by(self.provider.spec, claims)
            signed = await self.sessions.client.people.sign_in_vouched(
                vouched, **origin_of(request)
            )
        except VigilError as error:
            response = self._failed(request, error)
        else:
            response = begun(self.sessions, signed, login.to)
        # A login ends once, whatever came of it.
        response.delete_cookie(
            self._cookie, httponly=True, samesite="lax", secure=self.sessions.is_secure
        )
        return response

    def _begun(self, request: Request) -> BegunLogin:
        """Return the login that this browser has begun; `NotSignedIn`: it has not begun this."""
        login = _read(request.cookies.get(self._cookie, ""))
        state = request.query_params.get("state", "")
        if login is None:
            raise NotSignedIn(_NOT_BEGUN, remedy="sign in again")
        # guard: login-ends-where-begun
        if not hmac.compare_digest(state.encode(), login.state.encode()):
            raise NotSignedIn(_NOT_BEGUN, remedy="sign in again")
        return login

    def _code(self, request: Request) -> str:
        said = request.query_params
        issuer = said.get("iss")
        if issuer is not None and issuer != self.provider.spec.issuer:  # RFC 9207
            raise NotSignedIn("another provider has answered", remedy="sign in again")
        if error := said.get("error"):
            raise NotSignedIn(f"the provider refuses: {error!r:.200}")
        code = said.get("code", "")
        if not 0 < len(code) <= CODE_CHARS_MAX:
            raise NotSignedIn("the provider has sent no code", remedy="sign in again")
        return code

    def _failed(self, request: Request, error: VigilError) -> Response:
        status = 401 if isinstance(error, NotSignedIn) else 503
        return self.answers.failed(request, "Not signed in", str(error), status=status)


def challenge_of(verifier: str) -> str:
    """Return the PKCE challenge of a verifier: RFC 7636, section 4.2."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _written(login: BegunLogin) -> str:
    return urlsafe_b64encode(msgspec.json.encode(login)).rstrip(b"=").decode()


def _read(text: str) -> BegunLogin | None:
    if not text or len(text) > COOKIE_CHARS_MAX:
        return None
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        login = msgspec.json.decode(data, type=BegunLogin)
    except UNDECODABLE:
        return None
    return login if login.state and login.to == local_path(login.to) else None
