"""One HTTP connection of a server on loopback: h11 on the streams of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeAlias

import h11

READ_BYTES: Final = 64 * 1024
"""Most bytes that are read at a time."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest body of a request, in bytes: the context of a model, images included, has room."""


@dataclass(frozen=True)
class WireRequest:
    """What came; headers by their names in lower case, the path without a query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class WireReply:
    """What is sent."""

    status: int = HTTPStatus.OK
    body: bytes = b""
    frames: tuple[bytes, ...] = ()
    """Server-sent events, in place of a body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut_off: bool = False
    """Whether the connection ends after half of it."""
    is_never: bool = False
    """Whether nothing is sent as long as the client waits."""


Handle: TypeAlias = Callable[[WireRequest], Awaitable[WireReply]]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle) -> None:
    """Answer the requests of one connection with `handle`, until either side closes it."""
    connection = h11.Connection(h11.SERVER)
    try:
        while await _exchange(connection, reader, writer, handle):
            connection.start_next_cycle()
    except (ConnectionError, h11.RemoteProtocolError):
        pass  # The client has gone, or speaks no HTTP: there is nobody to tell.
    finally:
        writer.close()


async def _exchange(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handle: Handle,
) -> bool:
    """Answer one request; return whether another one may follow."""
    request = await _received(connection, reader)
    if request is None:
        return False
    reply = await handle(request)
    if reply.is_never:
        while await reader.read(READ_BYTES):
            pass
        return False
    for data in _sent(connection, reply):
        writer.write(data)
        await writer.drain()
    return connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def _received(connection: h11.Connection, reader: asyncio.StreamReader) -> WireRequest | None:
    """Return the next request; None: the client has closed the connection."""
    head = await _event(connection, reader)
    if not isinstance(head, h11.Request):
        return None
    parts: list[bytes] = []
    while isinstance(event := await _event(connection, reader), h11.Data):
        parts.append(bytes(event.data))
        if sum(map(len, parts)) > BODY_BYTES_MAX:
            raise h11.RemoteProtocolError(f"a body of more than {BODY_BYTES_MAX:,} bytes")
    return WireRequest(
        method=head.method.decode(),
        path=head.target.decode().partition("?")[0],
        headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
        body=b"".join(parts),
    )


async def _event(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> h11.Event | type[h11.PAUSED]:
    while True:
        event = connection.next_event()
        if not isinstance(event, type) or event is h11.PAUSED:
            return event
        connection.receive_data(await reader.read(READ_BYTES))


def _sent(connection: h11.Connection, reply: WireReply) -> list[bytes]:
    """Return the bytes of a reply, or of its first half."""
    is_streamed = bool(reply.frames)
    kind = "text/event-stream; charset=utf-8" if is_streamed else "application/json"
    headers = {"content-type": kind, **reply.headers}
    if not is_streamed:
        headers["content-length"] = str(len(reply.body))
    parts = list(reply.frames) if is_streamed else [reply.body]
    if reply.is_cut_off:
        parts = parts[: len(parts) // 2] if is_streamed else [reply.body[: len(reply.body) // 2]]
    head = h11.Response(status_code=reply.status, headers=list(headers.items()))
    events = [head, *(h11.Data(data=each) for each in parts)]
    if not reply.is_cut_off:
        events.append(h11.EndOfMessage())
    return [connection.send(each) or b"" for each in events]
