"""The server over streamable HTTP, as an ASGI app: alone, or part of the console.

Who comes with a token is whom `identify` knows. Without it everybody on the machine is let in, and
so the server listens on loopback only, and refuses pages of other sites by their origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl, ConfigDict

from engine.app.app import App
from engine.people.identity import Identity
from vigil.client.client import Client
from vigil.errors import Mistake
from vigil.mcp.caller import CALLS_PER_MINUTE_MAX, READ, Caller, scopes_of
from vigil.mcp.local import LocalCaller
from vigil.mcp.server import Context, Serving, server_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

PATH: Final = "/mcp"
"""Where the server is, below its address."""

BODY_BYTES_MAX: Final = 1024 * 1024
"""Largest request over HTTP, in bytes: the largest payload of an event, and some."""

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""What browsers and programs call this machine."""

TOKEN_CHARS_MAX: Final = 512
"""Longest token that is looked up."""

Identify: TypeAlias = Callable[[str], Awaitable[Identity | None]]
"""Returns whose token a text is; None: nobody's, or it holds no longer."""


class IdentifiedToken(AccessToken):
    """A token, and whose it is."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    identity: Identity


class PeopleVerifier(TokenVerifier):
    """Asks the stack's people whose a token is."""

    def __init__(self, identify: Identify) -> None:
        self._identify = identify

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token it is, and what it is for; None: nobody's."""
        if len(token) > TOKEN_CHARS_MAX:
            return None
        identity = await self._identify(token)
        if identity is None:
            return None
        return IdentifiedToken(
            token=token,
            client_id=identity.token or identity.name,
            subject=identity.name,
            scopes=scopes_of(Caller(identity=identity)),
            identity=identity,
        )


def asgi_app(
    client: Client,
    *,
    url: str,
    identify: Identify | None,
    local: Identity | None = None,
    caller: LocalCaller | None = None,
    app: App | None = None,
    console_url: str = "",
    calls_per_minute: int = CALLS_PER_MINUTE_MAX,
) -> Starlette:
    """Return the server as an ASGI app, with the paths `/mcp` and `/.well-known/…`.

    Whoever mounts it, mounts it at the root, below its own routes, and enters its lifespan:
    `async with mcp.router.lifespan_context(mcp)`. It closes nothing of `client`.

    Args:
        url: the address of the server as clients type it, without the path.
        identify: returns whose token a text is. None: nobody needs a token, and who calls is
            `local`.
        local: who calls where nobody needs a token.
        caller: makes sure of that before each call that acts.
        app: whose rules are tried, and whose parts definitions may name.
        console_url: where people sign in and decide; empty: `decide` tells them to type a command.
        calls_per_minute: most requests of one caller in a minute.

    Raises:
        Mistake: without tokens, `url` is not on loopback.
    """
    place = urlsplit(url)
    if identify is None:
        if local is None or not is_loopback(place.hostname or ""):  # guard: no-tokens-only-loopback
            raise Mistake(
                f"{url}: without tokens the server listens on loopback only",
                remedy="use 127.0.0.1, or the console, whose tokens it takes",
            )
        serving = Serving(
            client=client,
            identity_of=lambda _: local if caller is None else caller.identity,
            before_acting=None if caller is None else caller.before_acting,
            app=app,
            console_url=console_url,
            calls_per_minute=calls_per_minute,
        )
        return _app_of(serving, url, None)
    serving = Serving(
        client=client,
        identity_of=_of_token,
        app=app,
        console_url=console_url,
        calls_per_minute=calls_per_minute,
    )
    return _app_of(serving, url, PeopleVerifier(identify))


def _app_of(serving: Serving, url: str, verifier: TokenVerifier | None) -> Starlette:
    place = urlsplit(url)
    places = [place.netloc]
    if is_loopback(place.hostname or ""):  # It has several names there.
        port = "" if place.port is None else f":{place.port}"
        places = [f"{host}{port}" for host in LOOPBACK]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=places,
        allowed_origins=[f"{place.scheme}://{each}" for each in places],
    )
    auth = None
    if verifier is not None:
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(url),
            resource_server_url=AnyHttpUrl(f"{url}{PATH}"),
            required_scopes=[READ],
            validate_token_resource=False,  # A token is of one stack, which is what it is for.
        )
    return server_of(serving).streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=BODY_BYTES_MAX,
        transport_security=security,
        auth=auth,
        token_verifier=verifier,
    )


def _of_token(ctx: Context) -> Identity:
    """Return whose token came with the request itself, not with the first one of its session."""
    user: Any = ctx.request.user if ctx.request is not None else None
    token = getattr(user, "access_token", None)
    assert isinstance(token, IdentifiedToken), "no request gets here without a token"
    return token.identity


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
