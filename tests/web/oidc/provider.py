"""A provider of OpenID Connect on this machine, which says what a test has it say."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from streams.clock import SystemClock
from vigil.serving.http_program import HttpProgram
from vigil.web.oidc.provider import ANSWER_BYTES_MAX
from vigil.web.serve import listen

CLIENT = "vigil"
SECRET = "s3cret & odd+ünusual"


def new_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid}, private=True)


@dataclass
class LocalProvider:
    """What it says, and what it was asked."""

    url: str = ""
    issuer: str = ""
    keys: list[RSAKey] = field(default_factory=lambda: [new_key("k1")])
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "s1"})
    claims: dict[str, Any] = field(default_factory=dict)
    """What its token has otherwise than it should."""
    header: dict[str, Any] = field(default_factory=dict)
    signer: Any = None
    """What signs its tokens, if that is not the newest key."""
    methods: list[str] = field(default_factory=lambda: ["client_secret_basic"])
    asked_for_keys: int = 0
    is_away: bool = False
    is_endless: bool = False
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._keys),
            ]
        )

    async def _discovery(self, request: Request) -> Response:
        if self.is_away:
            return Response("broken", status_code=502)
        if self.is_endless:
            return Response(b" " * (ANSWER_BYTES_MAX + 1))
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.url}/authorize?tenant=1",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
                "token_endpoint_auth_methods_supported": self.methods,
            }
        )

    async def _authorize(self, request: Request) -> Response:
        """Let the person in at once, and send the browser back with a code."""
        said = dict(request.query_params)
        assert said["tenant"] == "1"
        code = secrets.token_urlsafe()
        self._codes[code] = said
        back = {"code": code, "state": said["state"], "iss": self.issuer}
        return RedirectResponse(f"{said['redirect_uri']}?{urlencode(back)}")

    async def _token(self, request: Request) -> Response:
        said = dict(parse_qsl((await request.body()).decode()))
        asked = self._codes.pop(said.get("code", ""), None)
        if asked is None:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        if self._secret(request, said) != SECRET:
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        digest = hashlib.sha256(said["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert asked["code_challenge"] == challenge
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"] == said["redirect_uri"]
        now = int(SystemClock().now().timestamp())
        told = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 60,
            "nonce": asked["nonce"], **self.person, **self.claims,
        }  # fmt: skip
        claims = {name: each for name, each in told.items() if each is not None}
        key = self.signer or self.keys[-1]
        header = {"alg": "RS256", "kid": self.keys[-1].kid, **self.header}
        if header["alg"] == "none":  # The library makes none of these.
            parts = [
                base64.urlsafe_b64encode(json.dumps(each).encode()) for each in (header, claims)
            ]
            return JSONResponse({"id_token": f"{b'.'.join(parts).decode().replace('=', '')}."})
        return JSONResponse({"id_token": jwt.encode(header, claims, key, ["RS256", "HS256"])})

    def _secret(self, request: Request, said: dict[str, str]) -> str:
        given = request.headers.get("authorization", "")
        if not given:
            return said.get("client_secret", "")
        name, _, secret = base64.b64decode(given.removeprefix("Basic ")).decode().partition(":")
        assert name == CLIENT
        return dict(parse_qsl(f"_={secret}"))["_"]

    async def _keys(self, request: Request) -> Response:
        self.asked_for_keys += 1
        return JSONResponse({"keys": [each.as_dict(private=False) for each in self.keys]})


@asynccontextmanager
async def serving(provider: LocalProvider) -> AsyncIterator[None]:
    """The provider listens meanwhile."""
    socket = listen("127.0.0.1", 0)
    provider.url = provider.issuer = f"http://127.0.0.1:{socket.getsockname()[1]}"
    server = HttpProgram(uvicorn.Config(provider.app(), log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve([socket]))
    try:
        yield
    finally:
        server.should_exit = True
        await running
