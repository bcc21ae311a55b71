"""Snapshots of streams, as the server sends and takes them (`STREAM.SNAPSHOT`, `STREAM.RESTORE`).

Measured with 2.15: a restored stream has all messages with their sequences, times and headers, and
its consumers where they were; only the time at which it was made is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import IO, Final

import msgspec

from streams.errors import Incompatible, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.protocol import Received
from streams.jetstream.messages import api
from streams.json import JsonObject

CHUNK_BYTES: Final = 128 * 1024
"""Size of a chunk of a snapshot: what the server proposes."""

SILENCE_S: Final = 30.0
"""Longest wait for a chunk, in seconds."""

CHUNKS_WAITING_MAX: Final = 1024
"""Most chunks that wait to be written: the server sends 8 MiB ahead of the acknowledgements."""


async def save(link: Link, stream: str, file: IO[bytes], tell: Callable[[int], None]) -> JsonObject:
    """Write a snapshot of a stream to a file; return its configuration and state as it began.

    `tell` is called with the number of bytes so far.

    Raises:
        Unavailable: the server stopped sending. What was written is of no use.
    """
    arrived: asyncio.Queue[Received] = asyncio.Queue(CHUNKS_WAITING_MAX)
    inbox = link.session.open_inbox(arrived.put_nowait)
    try:
        asked = {"deliver_subject": inbox.subject, "chunk_size": CHUNK_BYTES, "jsck": True}
        about = await api.ask(link, f"STREAM.SNAPSHOT.{stream}", asked, about=f"stream {stream}")
        size = 0
        async for chunk in _chunks(link, stream, arrived):
            file.write(chunk)
            size += len(chunk)
            tell(size)
    finally:
        inbox.close()
    return about


async def _chunks(
    link: Link, stream: str, arrived: asyncio.Queue[Received]
) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            async with link.clock.timeout(SILENCE_S):
                message = await arrived.get()
        except TimeoutError as error:
            detail = f"nothing of its snapshot came for {SILENCE_S:g} s"
            raise Unavailable(f"stream {stream}", detail=detail) from error
        if not message.data:
            if message.status not in {"", "204"}:
                detail = f"its snapshot was cut off: {message.status}"
                raise Unavailable(f"stream {stream}", detail=detail)
            return
        yield bytes(message.data)
        if message.reply:
            link.session.post(message.reply, b"")


async def load(
    link: Link, stream: str, path: Path, *, config: JsonObject, state: JsonObject
) -> JsonObject:
    """Make a stream of a snapshot; return what the server says of it.

    Raises:
        Incompatible: the server refuses it.
    """
    try:
        begun = await api.call(link, f"STREAM.RESTORE.{stream}", {"config": config, "state": state})
        subject = begun["deliver_subject"]
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                _check(stream, (await link.request(subject, chunk)).data)
        return _check(stream, (await link.request(subject, b"")).data)
    except api.RequestRefused as error:
        raise _refused(stream, str(error)) from error


def _check(stream: str, data: bytes) -> JsonObject:
    answer: JsonObject = msgspec.json.decode(data) if data else {}
    if error := answer.get("error"):
        raise _refused(stream, str(error.get("description", error)))
    return answer


def _refused(stream: str, why: str) -> Incompatible:
    return Incompatible(
        f"the server does not restore stream {stream}: {why}",
        remedy="Look into its log; it must not be older than the server of the backup.",
    )
