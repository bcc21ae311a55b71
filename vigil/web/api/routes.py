"""The routes of the API, to be mounted at `/api/v1`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from streams.clock import Clock
from vigil.web.api.answer import answer, identity_of
from vigil.web.api.asking import JSON
from vigil.web.api.openapi import DOCUMENT_PATH, document
from vigil.web.api.problems import (
    HEADERS,
    METHOD,
    NO_SUCH_PATH,
    ProblemRaised,
    answer_of,
)
from vigil.web.api.receive import CLOCK, receive
from vigil.web.api.stream import Streams
from vigil.web.api.table import OPERATIONS
from vigil.web.webhooks.file import Webhooks

Handler: TypeAlias = Callable[[Request, Mapping[str, str]], Awaitable[Response]]
"""Answers a request; takes what its path says, too."""

RECEIVES: Final = "events.publish"
"""The operation whose path takes what webhooks send, too."""

PATH_WORDS_MAX: Final = 16
"""Most parts of a path that are looked at."""


class PathRoute(BaseRoute):
    """A path, and what its methods do.

    What a path says may have slashes in it, as keys of findings do: `%2F` is no slash here.
    """

    def __init__(self, path: str, handlers: Mapping[str, Handler]) -> None:
        self.path = path
        self.handlers = {**handlers, **({"HEAD": handlers["GET"]} if "GET" in handlers else {})}
        self._words = path.strip("/").split("/")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this path, and what it says."""
        if scope["type"] != "http":
            return Match.NONE, {}
        given = words_of(scope)
        if given is None or len(given) != len(self._words):
            return Match.NONE, {}
        said: dict[str, str] = {}
        for word, wanted in zip(given, self._words, strict=True):
            if wanted.startswith("{"):
                said[wanted[1:-1]] = word
            elif word != wanted:
                return Match.NONE, {}
        return Match.FULL, {"path_params": said}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for this path."""
        response = await self._answer(Request(scope, receive, send), scope["path_params"])
        await response(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        """Raise `NoMatchFound`: no page links to the API by a name."""
        raise NoMatchFound(name, path_params)

    async def _answer(self, request: Request, said: Mapping[str, str]) -> Response:
        if (handler := self.handlers.get(request.method)) is not None:
            return await handler(request, said)
        allow = {"allow": ", ".join(sorted([*self.handlers, "OPTIONS"]))}
        if request.method == "OPTIONS":  # No word of other origins: they may ask for nothing.
            return Response(status_code=204, headers={**HEADERS, **allow})
        says = f"{request.method} is no method of {self.path}"
        return answer_of(ProblemRaised(METHOD, says, headers=allow))


class NoPath(BaseRoute):
    """Whatever has no other route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return that every request is for this one."""
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say that there is no such path."""
        says = "the API has no such path"
        refused = ProblemRaised(NO_SUCH_PATH, says, remedy="`openapi.json` has all of them")
        await answer_of(refused)(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        """Raise `NoMatchFound`: it has no path."""
        raise NoMatchFound(name, path_params)


def words_of(scope: Scope) -> Sequence[str] | None:
    """Return the parts of a request's path below where the API is mounted, decoded.

    None: there are too many, one is empty, or one is no text.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    above = scope.get("root_path", "").strip("/")
    parts = raw.partition(b"?")[0].strip(b"/").split(b"/")[above.count("/") + 1 if above else 0 :]
    if len(parts) > PATH_WORDS_MAX:
        return None
    try:
        words = [unquote_to_bytes(each).decode() for each in parts]
    except UnicodeDecodeError:
        return None
    return words if all(words) else None


def routes(webhooks: Webhooks | None = None, *, clock: Clock = CLOCK) -> list[BaseRoute]:
    """Return the routes of the API, for `Mount("/api/v1", routes=…)`.

    A request's `state` has the `client` of the stack, and under `identity` who asks; None or
    nothing: nobody knows. A delivery of a webhook may come from nobody: its signature tells. While
    the server that knows people and tokens does not answer, `away` says so.

    Args:
        webhooks: what `read_webhooks` returns; none: events come with a token alone.
    """
    streams, hooks = Streams(), {} if webhooks is None else webhooks
    by_path: dict[str, dict[str, Handler]] = {DOCUMENT_PATH: {"GET": _document}}
    for each in OPERATIONS:
        handler: Handler = partial(answer, each)
        if each.is_stream:
            handler = partial(streams.answer, each)
        elif each.name == RECEIVES:
            handler = partial(receive, each, hooks, clock)
        by_path.setdefault(each.path, {})[each.method] = handler
    # What is spelled out comes before what may be anything.
    paths = sorted(by_path, key=lambda path: [part.startswith("{") for part in path.split("/")])
    return [*(PathRoute(path, by_path[path]) for path in paths), NoPath()]


async def _document(request: Request, _: Mapping[str, str]) -> Response:
    """Return the OpenAPI document, to whoever is known."""
    try:
        identity_of(request)
    except ProblemRaised as refused:
        return answer_of(refused)
    return Response(_encoded_document(), media_type=JSON, headers=dict(HEADERS))


@cache
def _encoded_document() -> bytes:
    return msgspec.json.encode(document())
