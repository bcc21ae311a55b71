"""The HTTP client of the adapters, and what an answer means for a delivery.

| status | means |
| --- | --- |
| 2xx | delivered |
| 408, 425, 429, 5xx | failed for now: tried again, not before `Retry-After` |
| 3xx | failed: redirects are not followed, because only the declared address is trusted |
| any other | failed: the receiver refuses it |
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from engine.adapters.secret import Secret, checked_secret
from engine.app.outputs import DeliveryFailed
from engine.errors import BadAdapter
from engine.telemetry import keep_urls_out_of_logs
from streams.json import UNDECODABLE

TRANSIENT: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Statuses below 500 that are tried again."""

RETRY_AFTER_S_MAX: Final = 86_400.0
"""Longest wait that a receiver can ask for, in seconds: a day."""

REF_CHARS_MAX: Final = 512
"""Longest receiver's reference that is stored; the rest is cut."""


_DEPTH_MAX: Final = 10
"""How many causes of an error are searched."""


TIMEOUT_S: Final = 15.0
"""Default time for a receiver to answer with a status, in seconds: half of what a route gives an
attempt by default.
"""

ANSWER_BYTES_MAX: Final = 64 * 1024
"""How much of an answer is read: enough for a reference, or an error message."""

ANSWER_S_MAX: Final = 1.0
"""Longest wait for the body after the status, in seconds."""

CONNECTIONS_MAX: Final = 100
"""Connections of one adapter, on each node. Its route has fewer deliveries at a time, as a rule."""

KEPT_MAX: Final = 10
"""Idle connections that stay open."""

KEPT_S: Final = 30.0
"""How long they stay open, in seconds: shorter than the idle timeouts of servers and proxies."""


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a request."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    """As much of it as was read."""


def check(answer: HttpAnswer, *, now: datetime) -> None:
    """Raise `DeliveryFailed` unless the output is accepted; the detail may quote secrets."""
    status = answer.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    is_transient = status in TRANSIENT or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise DeliveryFailed(
        f"http_{status}",
        _words(answer),
        permanent=not is_transient,  # guard: transient-retried
        retry_after_s=retry_after_s(answer.headers.get("retry-after", ""), now=now),
    )


def retry_after_s(said: str, *, now: datetime) -> float | None:
    """Return the `Retry-After` (RFC 9110) in seconds, at most `RETRY_AFTER_S_MAX`; None: none."""
    said = said.strip()
    if said.isascii() and said.isdigit():
        return min(float(said), RETRY_AFTER_S_MAX)
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), RETRY_AFTER_S_MAX)


def receipt(answer: HttpAnswer) -> str | None:
    """Return the receiver's reference: `id` of its JSON answer, else `Location`."""
    named = _id(answer.body) or answer.headers.get("location", "")
    return named[:REF_CHARS_MAX] or None


def _id(body: bytes) -> str:
    try:
        said: object = msgspec.json.decode(body)
    except UNDECODABLE:
        return ""
    id_: object = said.get("id") if isinstance(said, dict) else None
    is_name = isinstance(id_, str | int) and not isinstance(id_, bool)
    return str(id_) if is_name else ""


def _words(answer: HttpAnswer) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        return "it redirects, and redirects are not followed"
    text = answer.body.decode(errors="replace")
    return " ".join(text.split())


def is_about_tls(error: BaseException) -> bool:
    """Return whether `error` comes from a certificate or from encryption."""
    at: BaseException | None = error
    for _ in range(_DEPTH_MAX):
        if isinstance(at, ssl.SSLError):
            return True
        at = at and (at.__cause__ or at.__context__)
    return False


class HttpClient:
    """Sends requests for one adapter."""

    def __init__(self, *, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        """Give each request `timeout_s` for its status; `tls` None trusts public CAs."""
        self._timeout_s = timeout_s
        self._tls = tls
        self._client: httpx.AsyncClient | None = None

    async def send(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str]
    ) -> HttpAnswer:
        """Send a request and return the answer; `DeliveryFailed`: not even a status arrived."""
        if self._client is None:
            self._client = _client(self._timeout_s, self._tls)
        client = self._client
        try:
            request = client.build_request(method, url, content=body, headers=headers)
            async with asyncio.timeout(self._timeout_s):
                response = await client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise _failure(error, self._timeout_s, host=_host(url)) from error
        try:
            return HttpAnswer(
                status=response.status_code,
                headers={name.lower(): value for name, value in response.headers.items()},
                body=await _beginning(response),
            )
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections. What is sent later opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def problem_of_url(url: str) -> str | None:
    """Return why no request can go to `url`, or None. The text never contains the url."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"not a URL: {error}"
    if parts.scheme not in {"http", "https"} or not has_host:
        return "not a URL that begins with https:// or http:// and a host"
    return None if url.isprintable() and " " not in url else "a space or a line end in a URL"


def checked_url(url: str) -> str:
    """Return `url` if a request can go there; else raise a permanent `DeliveryFailed`."""
    if problem := problem_of_url(url):
        raise DeliveryFailed("bad_url", problem, permanent=True)
    return url


def declared_url(url: Secret, *, of: str) -> Secret:
    """Return `url` if it is a URL or a function that returns one; else raise `BadAdapter`."""
    checked_secret(url, of=of, argument="url")
    if isinstance(url, str) and (problem := problem_of_url(url)):
        raise BadAdapter(of, "url", problem)
    return url


def _client(timeout_s: float, tls: ssl.SSLContext | None) -> httpx.AsyncClient:
    keep_urls_out_of_logs()
    return httpx.AsyncClient(
        verify=tls or True,
        http2=False,
        follow_redirects=False,  # guard: delivery-no-redirect
        timeout=timeout_s,
        limits=httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=KEPT_MAX,
            keepalive_expiry=KEPT_S,
        ),
        # An answer that is small on its way must not be huge when it is unpacked.
        headers={"Accept-Encoding": "identity", "User-Agent": "vigil"},
    )


async def _beginning(response: httpx.Response) -> bytes:
    read = bytearray()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) >= ANSWER_BYTES_MAX:  # guard: delivery-answer-bounded
                    break
    except (httpx.HTTPError, TimeoutError):  # guard: delivery-stands-once-answered
        return bytes(read)
    return bytes(read[:ANSWER_BYTES_MAX])


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _failure(
    error: httpx.HTTPError | httpx.InvalidURL | TimeoutError, timeout_s: float, *, host: str
) -> DeliveryFailed:
    match error:
        case TimeoutError() | httpx.TimeoutException():
            return DeliveryFailed("delivery_timeout", f"{host}: no answer for {timeout_s:g} s")
        case httpx.InvalidURL() | httpx.UnsupportedProtocol() | httpx.LocalProtocolError():
            # Their text may contain a secret: what is wrong with the URL, or with a header.
            return DeliveryFailed("bad_request", type(error).__name__, permanent=True)
        case _ if is_about_tls(error):
            return DeliveryFailed("tls_failed", f"{host}: {error}")
        case _:
            words = str(error) or type(error).__name__
            return DeliveryFailed("receiver_unavailable", f"{host}: {words}")
