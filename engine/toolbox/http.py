"""`http_request`: a tool that makes requests over HTTP, to hosts that its app allows."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urljoin, urlunsplit

import msgspec

from engine.app.function_tool import FunctionTool, tool
from engine.app.outputs import DeliveryFailed
from engine.app.tools import TOO_LARGE, CallContext, ToolFailed, class_of_status
from engine.errors import BadTool
from engine.secrets import texts_in, without
from engine.telemetry import keep_urls_out_of_logs
from engine.toolbox.addresses import AllowedAddresses, Destination, NotAllowed, allowed_addresses
from engine.validation import is_whole
from streams.json import UNDECODABLE

if TYPE_CHECKING:
    import httpx

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing (RFC 9110); others are side effects."""

METHODS: Final = SAFE | {"POST", "PUT", "PATCH", "DELETE"}

REDIRECTS_MAX: Final = 5
"""Most redirects that are followed, each to an address that is allowed."""

ANSWER_BYTES: Final = 128 * 1024
"""Largest body that is read, by default."""

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest body that may be allowed: half of what a result may have, as JSON is longer than text."""

NOT_ALLOWED: Final = "address_not_allowed"
"""Error class of a request to where none may go."""

_OURS: Final = frozenset({"host", "accept-encoding", "content-length", "transfer-encoding"})
"""Headers that say where a request goes and how long it is: nobody else sets them."""

_PUBLIC: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers whose values are no secrets, and would be missed in what people see."""

DETAIL_CHARS_MAX: Final = 500
"""Most of a failed answer's body that an error quotes, in characters."""

HeaderValue: TypeAlias = str | Callable[[], str]
"""A header's value, or a function that returns it for each request, such as `env("TOKEN")`."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses that `host` leads to."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def http_request(
    *,
    hosts: Sequence[str],
    networks: Sequence[str] = (),
    methods: Sequence[str] = ("GET", "HEAD"),
    headers: Mapping[str, HeaderValue] | None = None,
    idempotent: bool = False,
    timeout_s: float = 15.0,
    bytes_max: int = ANSWER_BYTES,
    tls: ssl.SSLContext | None = None,
    capability: str = "http",
) -> FunctionTool[..., Any]:
    """Return the tool `http.request`: `tool_call(web, url="https://…", method="GET", body=…)`.

    The result is `{"status", "headers", "body"}`; the body of a JSON answer is decoded, any other
    is text. Redirects of a `GET` or `HEAD` are followed, each after the same checks.

    Args:
        hosts: all that requests may go to: `api.example.com`, `*.example.com` for every name below
            it, `status.example.com:8443`. Without a port: 80 and 443.
        networks: networks that these names may lead to though they are not public, such as
            `10.1.0.0/16`. By default none: not loopback, link-local, private, or reserved.
        methods: which methods; with others than GET, HEAD and OPTIONS the tool has a side effect,
            and each request has the header `Idempotency-Key`.
        headers: sent with each request, until a redirect leads to another host; stored nowhere.
        idempotent: whether the hosts honour that key.
        timeout_s: for the whole call.
        bytes_max: longest body of an answer, in bytes; at most 8 MiB.
        tls: whom to trust; None: the public authorities.
        capability: what the tool is registered as.

    Raises `BadTool` if a value cannot work.
    """
    given = {each.upper() for each in methods}
    if not given or given - METHODS:
        known = ", ".join(sorted(METHODS))
        raise BadTool("http_request()", f"methods: {list(methods)} are not some of {known}")
    if not is_whole(bytes_max) or not 1 <= bytes_max <= ANSWER_BYTES_MAX:
        problem = f"bytes_max: {bytes_max!r} is not a whole number from 1 to {ANSWER_BYTES_MAX:,}"
        raise BadTool("http_request()", problem)
    try:
        allowed = allowed_addresses(hosts, networks)
    except ValueError as error:
        raise BadTool("http_request()", str(error)) from error
    requests = HttpRequests(
        allowed=allowed,
        methods=frozenset(given),
        headers=dict(headers or {}),
        timeout_s=timeout_s,
        bytes_max=bytes_max,
        tls=tls,
    )

    async def request(
        url: str,
        method: str = "GET",
        body: object = None,
        _headers: dict[str, str] | None = None,
        *,
        ctx: CallContext,
    ) -> dict[str, object]:
        """Make an HTTP request and return status, headers and body of the answer."""
        return await requests.make(method.upper(), url, body, _headers or {}, ctx.idempotency_key)

    declare = tool(
        side_effect=not given <= SAFE,
        idempotent=idempotent,
        timeout_s=timeout_s,
        capability=capability,
    )
    return replace(declare(request), secrets=requests.secrets)  # guard: echoed-header-hidden


@dataclass(frozen=True, kw_only=True)
class HttpRequests:
    """Makes requests to where they may go."""

    allowed: AllowedAddresses
    methods: frozenset[str]
    headers: Mapping[str, HeaderValue]
    timeout_s: float
    bytes_max: int
    tls: ssl.SSLContext | None = None
    resolve: Resolve = field(default=resolve)

    async def make(
        self, method: str, url: str, body: object, headers: Mapping[str, str], key: str
    ) -> dict[str, object]:
        """Return the answer as a result; `ToolFailed`: there is none, or it is a failure."""
        if method not in self.methods:  # guard: method-allow-list
            known = ", ".join(sorted(self.methods))
            raise ToolFailed("method_not_allowed", f"{method} is none of {known}")
        content = b"" if body is None else msgspec.json.encode(body)
        own = {"Content-Type": "application/json"} if content else {}
        own |= {} if method in SAFE else {"Idempotency-Key": key}
        secret = {**_values(self.headers), **headers}
        # guard: only-we-name-the-host
        secret = {name: each for name, each in secret.items() if name.lower() not in _OURS}
        host = ""
        for _ in range(REDIRECTS_MAX + 1):  # guard: redirects-max
            try:
                destination = self.allowed.destination(url)  # guard: redirect-checked
                address = await self._address(destination)
            except NotAllowed as error:
                raise ToolFailed(NOT_ALLOWED, str(error)) from error
            if host and host != destination.origin:
                # For good: another host that sends us back has chosen what we ask for.
                secret = {}  # guard: secrets-stay-with-host
            host = destination.origin
            sent = {**own, **secret}
            answer, text = await self._send(method, destination, address, content, sent)
            if not answer.has_redirect_location or method not in SAFE:
                return _result(answer, text, secrets=_secrets(secret))
            url = urljoin(url, answer.headers["location"])
        raise ToolFailed("too_many_redirects", f"over {REDIRECTS_MAX}, the last to {host}")

    def secrets(self) -> Collection[str]:
        """Return what is sent with each request and people must not see."""
        with suppress(ToolFailed):  # No request is made then.
            return _secrets(_values(self.headers))
        return ()

    async def _address(self, destination: Destination) -> str:
        try:
            found = await self.resolve(destination.host, destination.port)
        except OSError as error:
            raise ToolFailed("tool_unavailable", f"{destination.host}: {error}") from error
        return self.allowed.check(destination, found)

    async def _send(
        self,
        method: str,
        destination: Destination,
        address: str,
        content: bytes,
        headers: Mapping[str, str],
    ) -> tuple[httpx.Response, bytes]:
        import httpx  # noqa: PLC0415 - only who makes requests needs it

        parts = destination.url
        where = f"[{address}]" if ":" in address else address
        # To the address that was checked: the name may lead elsewhere by now.
        # guard: checked-address-is-called
        url = urlunsplit((parts.scheme, f"{where}:{destination.port}", parts.path, parts.query, ""))
        named = {
            **headers,
            "Host": parts.netloc,
            # What is small on its way must not be huge when it is unpacked.
            "Accept-Encoding": "identity",
        }
        try:
            async with (
                await self._client(parts.scheme) as client,
                client.stream(
                    method,
                    url,
                    content=content,
                    headers=named,
                    extensions={"sni_hostname": destination.host},
                ) as answer,
            ):
                return answer, await self._body(answer)
        except httpx.InvalidURL as error:
            raise ToolFailed(NOT_ALLOWED, f"not a URL: {error}") from error
        except httpx.TimeoutException as error:
            raise ToolFailed(
                "tool_timeout", f"{destination.host}: {type(error).__name__}"
            ) from error
        # guard: unsendable-secret-in-no-error
        except (httpx.LocalProtocolError, UnicodeEncodeError) as error:
            # Its message quotes the header that cannot be sent, which may be a secret.
            detail = f"{destination.host}: {type(error).__name__}"
            raise ToolFailed("tool_unavailable", detail) from None
        except httpx.HTTPError as error:
            detail = f"{destination.host}: {type(error).__name__}: {error}"
            raise ToolFailed("tool_unavailable", detail) from error

    async def _client(self, scheme: str) -> httpx.AsyncClient:
        import httpx  # noqa: PLC0415 - only who makes requests needs it

        keep_urls_out_of_logs()
        tls: ssl.SSLContext | bool = self.tls or False
        if scheme == "https" and self.tls is None:
            tls = await asyncio.to_thread(_public_tls)
        # No proxy of the environment, which would resolve the name itself. And no kept connections:
        # one to the same address may have been made for another name.
        return httpx.AsyncClient(
            verify=tls, trust_env=False, follow_redirects=False, timeout=self.timeout_s
        )

    async def _body(self, answer: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > self.bytes_max:  # guard: answer-bytes-max
                raise ToolFailed(TOO_LARGE, f"an answer of over {self.bytes_max:,} bytes")
        return bytes(body)


def _values(headers: Mapping[str, HeaderValue]) -> dict[str, str]:
    try:
        return {name: each() if callable(each) else each for name, each in headers.items()}
    except DeliveryFailed as failed:  # How `env` says that a secret is missing.
        raise ToolFailed(failed.error_class, failed.detail) from failed


def _secrets(headers: Mapping[str, str]) -> Collection[str]:
    return set(texts_in([each for name, each in headers.items() if name.lower() not in _PUBLIC]))


def _result(answer: httpx.Response, body: bytes, *, secrets: Collection[str]) -> dict[str, object]:
    status = answer.status_code
    text = body.decode(errors="replace")
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        # Before it is cut: a part of a secret is not found.
        # guard: cut-after-hiding
        said = without(" ".join(text.split()), secrets)[:DETAIL_CHARS_MAX]
        raise ToolFailed(class_of_status(status), f"{status}: {said}")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return {"status": status, "headers": headers, "body": _decoded(answer, body, text)}


def _decoded(answer: httpx.Response, body: bytes, text: str) -> object:
    if "json" not in answer.headers.get("content-type", "") or not body:
        return text
    try:
        return msgspec.json.decode(body)
    except UNDECODABLE:
        return text


@cache
def _public_tls() -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - only who makes requests needs it

    return httpx.create_ssl_context(trust_env=False)
