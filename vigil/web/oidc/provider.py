"""What the console asks a provider of OpenID Connect: where things are, its keys, and a token.

Everything that a provider says is checked before it is believed: the addresses are its own, the
token is signed by one of its keys with an algorithm of public keys, is for this console, for this
browser's login, and new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from engine.errors import BadDefinition
from engine.validation import parsed
from streams.clock import Clock
from streams.json import UNDECODABLE, JsonObject
from vigil.errors import Mistake, NotSignedIn, ServerAway
from vigil.settings import OIDC, table_in
from vigil.web.oidc.settings import OidcSpec, problem_of_url
from vigil.web.webhooks.file import secret_named

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "EdDSA",
)
"""Signatures that are believed: of public keys alone, so nobody who knows the client's secret can
make one, and never `none`."""

TIMEOUT_S: Final = 10.0
"""Longest that the provider may take to answer, in seconds."""

ANSWER_BYTES_MAX: Final = 1_048_576
"""Longest answer of it, in bytes."""

KNOWN_S: Final = 3_600.0
"""How long it is believed where things are at the provider, and which keys it has, in seconds."""

AGAIN_S: Final = 60.0
"""Shortest time between two questions for its keys, in seconds: whoever shows a token with an
unknown key must not have it asked each time."""

LEEWAY_S: Final = 60
"""By how much its clock may differ from ours, in seconds."""

_REFUSED: Final = "the provider's answer cannot be believed"


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are at a provider: its discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Provider:
    """A provider, as it was last asked."""

    def __init__(self, spec: OidcSpec, *, secret: str, clock: Clock) -> None:
        self.spec = spec
        self._secret, self._clock = secret, clock
        self._discovered: tuple[Discovered, float] | None = None
        self._keys: tuple[KeySet, float] | None = None
        self._turn = asyncio.Lock()

    async def discovered(self) -> Discovered:
        """Return where things are.

        Raises:
            ServerAway: the provider does not answer, or not as one does.
        """
        now_s = self._clock.monotonic_s()
        known = self._discovered
        if known is not None and now_s - known[1] < KNOWN_S:
            return known[0]
        where = f"{self.spec.issuer.rstrip('/')}/.well-known/openid-configuration"
        said = await self._asked("GET", where)
        try:
            found = msgspec.convert(said, Discovered)
        except msgspec.ValidationError as error:
            raise ServerAway(f"{where}: {error}") from error
        if found.issuer != self.spec.issuer:  # guard: discovered-issuer-is-own
            raise ServerAway(f"{where} is about {found.issuer!r:.200}")
        for each in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if problem := problem_of_url(each):
                raise ServerAway(f"{where}: {problem}")
        self._discovered = found, now_s
        return found

    async def claims(
        self, code: str, *, verifier: str, nonce: str, redirect_uri: str
    ) -> JsonObject:
        """Return what the provider says of who has come back with a code.

        Raises:
            NotSignedIn: it is not to be believed, or the code is not good.
            ServerAway: the provider does not answer.
        """
        found = await self.discovered()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.spec.client_id,
            "code_verifier": verifier,
        }
        auth: httpx.BasicAuth | None = None
        methods = found.token_endpoint_auth_methods_supported
        if self._secret and "client_secret_basic" in methods:
            # RFC 6749, section 2.3.1: both are written as in a form before they are joined.
            auth = httpx.BasicAuth(_encoded(self.spec.client_id), _encoded(self._secret))
        elif self._secret:
            form["client_secret"] = self._secret
        said = await self._asked("POST", found.token_endpoint, form=form, auth=auth)
        token = said.get("id_token")
        if not isinstance(token, str):
            raise NotSignedIn(f"{_REFUSED}: it has no token of who you are")
        return await self._checked(token, found, nonce=nonce)

    async def _checked(self, token: str, found: Discovered, *, nonce: str) -> JsonObject:
        allowed = [
            each for each in ALGORITHMS if each in found.id_token_signing_alg_values_supported
        ]
        try:
            keys = await self._known_keys(found)
            try:
                claims = jwt.decode(token, keys, allowed).claims
            except InvalidKeyIdError:  # guard: newer-key-asked-for
                newer = await self._known_keys(found, is_new=True)
                claims = jwt.decode(token, newer, allowed).claims
            self._check(claims, nonce=nonce)
        except (JoseError, *UNDECODABLE) as error:
            raise NotSignedIn(f"{_REFUSED}: {error}") from error
        return claims

    def _check(self, claims: Mapping[str, Any], *, nonce: str) -> None:
        now = int(self._clock.now().timestamp())
        registry = jwt.JWTClaimsRegistry(
            now=now,
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.spec.issuer},
            sub={"essential": True},
            aud={"essential": True, "value": self.spec.client_id},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        registry.validate(dict(claims))
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        azp = claims.get("azp")
        # guard: token-of-this-client
        if azp not in (None, self.spec.client_id) or (several and azp is None):
            raise NotSignedIn(f"{_REFUSED}: it is for {azp!r:.200}")

    async def _known_keys(self, found: Discovered, *, is_new: bool = False) -> KeySet:
        async with self._turn:
            now_s, known = self._clock.monotonic_s(), self._keys
            good_s = AGAIN_S if is_new else KNOWN_S
            if known is not None and now_s - known[1] < good_s:  # guard: keys-asked-for-sometimes
                return known[0]
            said = await self._asked("GET", found.jwks_uri)
            try:
                keys = KeySet.import_key_set({"keys": list(said.get("keys") or ())})
            except (JoseError, *UNDECODABLE, TypeError, KeyError, AttributeError) as error:
                raise ServerAway(f"{found.jwks_uri}: no keys: {error}") from error
            self._keys = keys, now_s
            return keys

    async def _asked(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        auth: httpx.BasicAuth | None = None,
    ) -> JsonObject:
        try:
            async with (
                httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client,
                client.stream(
                    method,
                    url,
                    data=form,
                    auth=auth,
                    headers={"accept": "application/json"},
                ) as answer,
            ):
                body = b""
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > ANSWER_BYTES_MAX:  # guard: provider-answer-has-an-end
                        raise ServerAway(f"{url}: over {ANSWER_BYTES_MAX:,} bytes")
                status = answer.status_code
        except httpx.HTTPError as error:
            raise ServerAway(f"{url}: {str(error) or type(error).__name__}") from error
        try:
            said = msgspec.json.decode(body)
        except UNDECODABLE as error:
            raise ServerAway(f"{url}: status {status}, and no JSON") from error
        if not isinstance(said, dict):
            raise ServerAway(f"{url}: status {status}, and no JSON object")
        if status == httpx.codes.OK:
            return said
        if form is not None and status in (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED):
            raise NotSignedIn(f"the provider refuses: {said.get('error')!r:.200}")
        raise ServerAway(f"{url}: status {status}")


def _encoded(text: str) -> str:
    return str(httpx.QueryParams({"_": text})).removeprefix("_=")


def provider_in(file: Path, clock: Clock) -> Provider | None:
    """Return the provider that `vigil.toml` names; None: it names none.

    Raises:
        Mistake: something in its table cannot be; the error names the field.
    """
    table = table_in(file, OIDC)
    if table is None:
        return None
    try:
        spec = parsed(OidcSpec, dict(table))
        named = spec.client_secret
        secret = secret_named(named, file.parent)() if named else ""
    except (BadDefinition, ValueError) as error:
        raise Mistake(f"{file.name}: {OIDC}: {error}") from error
    return Provider(spec, secret=secret, clock=clock)
