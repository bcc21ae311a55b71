"""`Webhook`: outputs as HTTP requests, signed if there is a secret."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from engine.adapters import secret as signature
from engine.adapters.http import TIMEOUT_S, HttpClient, check, checked_url, declared_url, receipt
from engine.adapters.secret import (
    BAD,
    Confidence,
    Secret,
    checked_secret,
    checked_timeout,
    checked_tls,
)
from engine.app.outputs import DeliveryFailed, OutputAdapter, OutputView
from engine.errors import BadAdapter
from streams.clock import Clock, SystemClock
from streams.json import exact

Method: TypeAlias = Literal["POST", "PUT", "PATCH"]

IDEMPOTENCY_KEY: Final = "idempotency-key"
ATTEMPT: Final = "vigil-attempt"

_RESERVED: Final = frozenset(
    {
        *(signature.ID, signature.TIMESTAMP, signature.SIGNATURE, IDEMPOTENCY_KEY, ATTEMPT),
        *("content-length", "content-type", "host", "transfer-encoding", "connection"),
    }
)
"""Headers that users may not set."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]*[A-Za-z0-9][A-Za-z0-9_-]*")


class Webhook(OutputAdapter):
    """Sends each output's payload as a JSON body to one URL.

    A 2xx status delivers it; the receiver's reference is the `id` of its JSON answer, or else its
    `Location` header. 408, 425, 429, any 5xx and connection errors are tried again, not before
    `Retry-After`. Any other status fails the output at once, redirects included.

    Every request has `Idempotency-Key`, the same for each attempt at an output, and
    `Vigil-Attempt`. With a secret it is signed by Standard Webhooks: `webhook-id` (that key again),
    `webhook-timestamp` and `webhook-signature`.
    """

    def __init__(
        self,
        url: Secret,
        *,
        secret: Secret | None = None,
        headers: Mapping[str, Secret] | None = None,
        method: Method = "POST",
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Declare the address.

        Args:
            url: begins with https:// or http://.
            secret: `whsec_` and the base64 of 24 to 64 random bytes; several, separated by spaces,
                while receivers rotate them. None: unsigned.
            headers: more headers, such as `Authorization`.
            timeout_s: until the receiver answers, in seconds. Keep it under the route's timeout,
                which cuts off the whole delivery.
            tls: None: public certificate authorities.
            clock: for the time of a signature.

        Raises `BadAdapter` if one of them cannot work.
        """
        if method not in get_args(Method):
            raise BadAdapter("Webhook", "method", f"{method!r}; use one of {get_args(Method)}")
        self._url = declared_url(url, of="Webhook")
        self._secret = None if secret is None else _checked_key(secret)
        self._headers = _checked_headers({} if headers is None else headers)
        self._method = method
        self._http = HttpClient(
            timeout_s=checked_timeout(timeout_s, of="Webhook"), tls=checked_tls(tls, of="Webhook")
        )
        self._clock = clock or SystemClock()

    async def deliver(self, output: OutputView) -> str | None:
        """Send one request. See `OutputAdapter.deliver`."""
        confidence = Confidence("Webhook")
        try:
            named = await self._send(output, confidence)
        except DeliveryFailed as failure:
            raise confidence.in_public(failure) from None
        return named and confidence.hide_in_name(named)  # guard: delivery-id-no-secret

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _send(self, output: OutputView, confidence: Confidence) -> str | None:
        body = bytes(exact(output.payload))
        answer = await self._http.send(
            self._method,
            checked_url(confidence.told_url(self._url)),
            body=body,
            headers=self._said(output, body, confidence),
        )
        check(answer, now=self._clock.now())
        return receipt(answer)

    def _said(self, output: OutputView, body: bytes, confidence: Confidence) -> Mapping[str, str]:
        own = {
            name: _value(name, confidence.told(secret, f"headers: {name!r}"))
            for name, secret in self._headers.items()
        }
        return {
            **own,
            "content-type": "application/json",
            IDEMPOTENCY_KEY: output.idempotency_key,
            ATTEMPT: str(output.attempt),
            **self._signed(output.idempotency_key, body, confidence),
        }

    def _signed(self, id: str, body: bytes, confidence: Confidence) -> Mapping[str, str]:
        if self._secret is None:
            return {}
        try:
            keys = signature.keys_of(confidence.told(self._secret, "secret"))
        except ValueError as error:
            raise DeliveryFailed(BAD, f"Webhook: secret: {error}", permanent=True) from error
        return signature.signed_headers(keys, id=id, at=self._clock.now(), body=body)


def _checked_key(secret: Secret) -> Secret:
    checked_secret(secret, of="Webhook", argument="secret")
    if isinstance(secret, str):
        try:
            signature.keys_of(secret)
        except ValueError as error:
            raise BadAdapter("Webhook", "secret", str(error)) from error
    return secret


def _checked_headers(headers: Mapping[str, Secret]) -> Mapping[str, Secret]:
    if not isinstance(headers, Mapping):
        kind = type(headers).__name__
        raise BadAdapter("Webhook", "headers", f"not a dict of name to value, but {kind}")
    for name, value in headers.items():
        if problem := _problem_of_header(name):
            raise BadAdapter("Webhook", "headers", problem)
        checked_secret(value, of="Webhook", argument=f"headers: {name!r}")
        if isinstance(value, str) and not _is_value(value):
            raise BadAdapter("Webhook", f"headers: {name!r}", "not a line of ASCII")
    return dict(headers)


def _problem_of_header(name: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not the name of a header"
    return f"{name!r} is set by the adapter" if name.lower() in _RESERVED else None


def _value(name: str, value: str) -> str:
    if not _is_value(value):  # guard: header-is-one-line
        raise DeliveryFailed("bad_header", f"{name}: not a line of ASCII", permanent=True)
    return value


def _is_value(value: str) -> bool:
    return value.isascii() and value.isprintable() and value == value.strip()
