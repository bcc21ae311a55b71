"""What stands before every address: foreign requests and long bodies are refused, headers added."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vigil.web.policy import BODY_BYTES_MAX, HEADERS, why_foreign

WITHOUT_SESSION: Final = ("/api/v1/events/", "/mcp")
"""What no session opens: senders say by a signature or a token who they are, and no page of others
can make a browser do so. What they lack is told by the address itself."""


TOO_LONG: Final = f"refused: the body is longer than {BODY_BYTES_MAX:,} bytes"


class Protected:
    """Refuses what no page of ours has sent, and has every answer say what browsers may do."""

    def __init__(self, app: ASGIApp, *, origin: str = "") -> None:
        self._app, self._origin = app, origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        has_token = "authorization" in headers or scope["path"].startswith(WITHOUT_SESSION)
        why = why_foreign(scope["method"], headers, origin=self._origin, has_token=has_token)
        length = headers.get("content-length", "")
        if why is not None:  # guard: foreign-request-refused
            answer = PlainTextResponse(f"refused: {why}", status_code=403)
            await answer(scope, receive, _with_headers(send))
        elif length.isdecimal() and int(length) > BODY_BYTES_MAX:
            await PlainTextResponse(TOO_LONG, 413)(scope, receive, _with_headers(send))
        else:
            await self._app(scope, _counted(receive), _with_headers(send))


def _counted(receive: Receive) -> Receive:
    """Return what receives no more of a body than is read."""
    read = 0

    async def received() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > BODY_BYTES_MAX:  # guard: long-body-not-read
            raise HTTPException(413, TOO_LONG)
        return message

    return received


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, text in HEADERS.items():
                headers.setdefault(name, text)
        await send(message)

    return sent
