"""A receiver of HTTP requests on loopback, which answers as a test says, however badly."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

CHUNK: Final = b"x" * 64 * 1024

Answering: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """What came, its headers by their names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """Answers one request after the other with `answers`; the last of them repeats."""

    def __init__(self, *answers: Answering, tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.connections = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        assert self._server is not None
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task, writer in self._serving.items():
            writer.transport.abort()
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                answering = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await answering(writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            del self._serving[task]
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


def answer(status: int, body: bytes = b"", **headers: str) -> Answering:
    """Answer in full. The names of `headers` have hyphens for underscores."""

    async def answering(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, length=len(body), **headers) + body)
        await writer.drain()

    return answering


async def silence(writer: asyncio.StreamWriter) -> None:
    """Accept the request and never answer."""
    await asyncio.get_running_loop().create_future()


async def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection off instead of answering."""
    writer.transport.abort()


async def reset_in_answer(writer: asyncio.StreamWriter) -> None:
    """Break it off in the middle of the body."""
    writer.write(_head(200, length=1000) + b'{"id":')
    await writer.drain()
    writer.close()


async def stop_in_answer(writer: asyncio.StreamWriter) -> None:
    """Say the status and a part of the body, and nothing more."""
    writer.write(_head(200, length=1000) + b'{"id":')
    await writer.drain()
    await silence(writer)


async def never_end(writer: asyncio.StreamWriter) -> None:
    """Send a body for as long as anybody reads it."""
    writer.write(_head(200, length=10**12))
    while True:
        writer.write(CHUNK)
        await writer.drain()


async def nonsense(writer: asyncio.StreamWriter) -> None:
    """Speak something else than HTTP."""
    writer.write(b"220 mail.example ESMTP\r\n\r\n")
    await writer.drain()


def _head(status: int, *, length: int, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(
        [f"HTTP/1.1 {status} Said", f"content-length: {length}", *lines, "", ""]
    ).encode()
