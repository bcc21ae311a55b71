"""Requests over HTTP/1.1, on connections that are kept open between them.

Redirects are not followed, answers are read as far as they are of use, and nothing waits for ever.
Proxies and additional certificates come from the environment, as with other programs
(`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx

from engine.adapter import DeliveryFailed
from engine.adapters.answers import Answer
from engine.adapters.causes import is_about_tls
from engine.adapters.secret import Secret, checked_secret
from engine.errors import BadAdapter

TIMEOUT_S: Final = 15.0
"""How long a receiver may take until it says whether it accepts, in seconds, unless the app says
otherwise. Half of what a route gives an attempt by default."""

ANSWER_BYTES_MAX: Final = 64 * 1024
"""How much of an answer is read. All that is used of it is a name, or a sentence."""

ANSWER_S_MAX: Final = 1.0
"""How long an answer may take to follow its status, in seconds."""

CONNECTIONS_MAX: Final = 100
"""Connections of one adapter, on each node. Its route has fewer deliveries at a time, as a rule."""

KEPT_MAX: Final = 10
"""Connections that are kept open while nothing is sent."""

KEPT_S: Final = 30.0
"""How long they are, in seconds: less than servers and proxies close them after."""


class HttpClient:
    """Sends requests for one adapter."""

    def __init__(self, *, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        """Give each request `timeout_s` until its status is there; None trusts public CAs."""
        self._timeout_s = timeout_s
        self._tls = tls
        self._client: httpx.AsyncClient | None = None

    async def send(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        """Send a request and return the answer, whatever it says.

        The status decides. Once it is there, what goes wrong with the rest of the answer, or never
        comes, changes nothing any more.

        Raises:
            DeliveryFailed: there was no status.
        """
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
            return Answer(
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
    """Return why no request can go to `url`, or None. The url is not in what it says."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"not a URL: {error}"
    if parts.scheme not in {"http", "https"} or not has_host:
        return "not a URL that begins with https:// or http:// and a host"
    return None if url.isprintable() and " " not in url else "a space or a line end in a URL"


def checked_url(url: str) -> str:
    """Return `url` if a request can go there.

    Raises:
        DeliveryFailed: it is none, for good.
    """
    if problem := problem_of_url(url):
        raise DeliveryFailed("bad_url", problem, permanent=True)
    return url


def declared_url(url: Secret, *, of: str) -> Secret:
    """Return `url` if the adapter `of` can send requests there, as far as it is known by now.

    Raises:
        BadAdapter: it is no URL, or nothing that returns one.
    """
    checked_secret(url, of=of, argument="url")
    if isinstance(url, str) and (problem := problem_of_url(url)):
        raise BadAdapter(of, "url", problem)
    return url


def _client(timeout_s: float, tls: ssl.SSLContext | None) -> httpx.AsyncClient:
    _keep_urls_out_of_logs()
    return httpx.AsyncClient(
        verify=tls or True,
        http2=False,
        follow_redirects=False,
        timeout=timeout_s,
        limits=httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=KEPT_MAX,
            keepalive_expiry=KEPT_S,
        ),
        # An answer that is small on its way must not be huge when it is unpacked.
        headers={"Accept-Encoding": "identity", "User-Agent": "vigil"},
    )


def _keep_urls_out_of_logs() -> None:
    """Have httpx log no request: for some receivers, the address is the password."""
    for name in ("httpx", "httpcore"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


async def _beginning(response: httpx.Response) -> bytes:
    """Return what comes of the body in time, up to `ANSWER_BYTES_MAX`."""
    read = bytearray()
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) >= ANSWER_BYTES_MAX:
                    break
    except (httpx.HTTPError, TimeoutError):
        return bytes(read)
    return bytes(read[:ANSWER_BYTES_MAX])


def _host(url: str) -> str:
    """Return host and port of a URL: what people may read of it, and need."""
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
            # Their words may hold a secret: what is wrong with the URL, or with a header.
            return DeliveryFailed("bad_request", type(error).__name__, permanent=True)
        case _ if is_about_tls(error):
            return DeliveryFailed("tls_failed", f"{host}: {error}")
        case _:
            words = str(error) or type(error).__name__
            return DeliveryFailed("receiver_unavailable", f"{host}: {words}")
