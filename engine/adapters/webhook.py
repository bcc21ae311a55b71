"""Outputs as HTTP requests, signed if there is a secret."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from engine.adapter import DeliveryFailed, OutputAdapter, OutputView
from engine.adapters import signature
from engine.adapters.answers import check, receipt
from engine.adapters.http import TIMEOUT_S, HttpClient, checked_url, problem_of_url
from engine.adapters.limits import checked_timeout
from engine.adapters.secret import Secret, told
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
"""Headers that are ours to say."""


class Webhook(OutputAdapter):
    """Sends each output's payload, as JSON and nothing around it, to one URL.

    A 2xx status is what delivers it; what the receiver calls it is the `id` of its JSON answer, or
    else its `Location` header. 408, 425, 429, any 5xx and trouble with the connection are tried
    again, not before `Retry-After`. Any other status fails the output at once, redirects as well.

    Every request has `Idempotency-Key`, the same for each attempt at an output, and
    `Vigil-Attempt`. With a secret it is signed as Standard Webhooks does, and has `webhook-id`
    (that key again), `webhook-timestamp` and `webhook-signature`, too.
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
        """Declare where outputs go.

        Args:
            url: begins with https:// or http://.
            secret: `whsec_` and the base64 of 24 to 64 random bytes; several, with spaces in
                between, while receivers change from one to another. None: nothing is signed.
            headers: more headers, such as `Authorization`.
            method: of the request.
            timeout_s: until the receiver says whether it accepts, in seconds. Keep it under the
                route's, which cuts off the whole delivery.
            tls: whom to trust; None: the certificate authorities that browsers do.
            clock: what the time of a signature comes from.

        Raises:
            ValueError: one of them cannot work.
        """
        if isinstance(url, str) and (problem := problem_of_url(url)):
            raise ValueError(f"Webhook: url: {problem}")
        if method not in get_args(Method):
            raise ValueError(f"Webhook: method: {method!r}; use one of {get_args(Method)}")
        if isinstance(secret, str):
            signature.keys_of(secret)
        self._url = url
        self._secret = secret
        self._headers = _checked_headers(headers or {})
        self._method = method
        self._http = HttpClient(timeout_s=checked_timeout(timeout_s, of="Webhook"), tls=tls)
        self._clock = clock or SystemClock()

    async def deliver(self, output: OutputView) -> str | None:
        """Send one request. See `OutputAdapter.deliver`."""
        body = bytes(exact(output.payload))
        answer = await self._http.send(
            self._method,
            checked_url(told(self._url)),
            body=body,
            headers=self._said(output, body),
        )
        check(answer, now=self._clock.now())
        return receipt(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _said(self, output: OutputView, body: bytes) -> Mapping[str, str]:
        own = {name: _value(name, told(secret)) for name, secret in self._headers.items()}
        return {
            **own,
            "content-type": "application/json",
            IDEMPOTENCY_KEY: output.idempotency_key,
            ATTEMPT: str(output.attempt),
            **self._signed(output.idempotency_key, body),
        }

    def _signed(self, id: str, body: bytes) -> Mapping[str, str]:
        if self._secret is None:
            return {}
        try:
            keys = signature.keys_of(told(self._secret))
        except ValueError as error:
            raise DeliveryFailed("bad_secret", str(error), permanent=True) from error
        return signature.signed_headers(keys, id=id, at=self._clock.now(), body=body)


def _checked_headers(headers: Mapping[str, Secret]) -> Mapping[str, Secret]:
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"Webhook: headers: {name!r} is not the name of a header")
        if name.lower() in _RESERVED:
            raise ValueError(f"Webhook: headers: {name!r} is set by the adapter")
        if isinstance(value, str) and not _is_value(value):
            raise ValueError(f"Webhook: headers: {name!r}: not a line of ASCII")
    return dict(headers)


def _value(name: str, value: str) -> str:
    if not _is_value(value):
        raise DeliveryFailed("bad_header", f"{name}: not a line of ASCII", permanent=True)
    return value


def _is_value(value: str) -> bool:
    return value.isascii() and value.isprintable() and value == value.strip()
