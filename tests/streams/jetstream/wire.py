"""A wire between a client and a server that a test can cut, and on which it can lose bytes.

Killing a server loses a request and its answer together. The cases that matter most need
to lose only one of them: an answer whose request was stored, or a request that never came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

CHUNK_BYTES: Final = 64 * 1024
POLL_S: Final = 0.005
WAIT_S: Final = 10.0


class Wire:
    """A TCP proxy in front of one server."""

    def __init__(self, url: str) -> None:
        self._server_port = urlsplit(url).port
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.loses_requests = False
        self.loses_answers = False
        self.holds_answers = False
        """Keeps answers back until it no longer does."""
        self.is_blocked = False
        """Refuses new connections."""

    @property
    def url(self) -> str:
        assert self._listener is not None
        return f"nats://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut()
        if self._pumps:
            await asyncio.wait(self._pumps)

    def cut(self) -> None:
        """Drop every connection; the next one is whole again."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self.loses_requests = self.loses_answers = self.holds_answers = False

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_blocked:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:  # The server is down: so is the wire.
            writer.transport.abort()
            return
        self._writers += [writer, far_writer]
        self._pump(reader, far_writer, is_lost=lambda: self.loses_requests, is_held=lambda: False)
        self._pump(
            far_reader,
            writer,
            is_lost=lambda: self.loses_answers,
            is_held=lambda: self.holds_answers,
        )

    def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_lost: Callable[[], bool],
        is_held: Callable[[], bool],
    ) -> None:
        task = asyncio.create_task(_pump(reader, writer, is_lost, is_held))
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    is_lost: Callable[[], bool],
    is_held: Callable[[], bool],
) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            while is_held():  # noqa: ASYNC110 - a test's flag
                await asyncio.sleep(POLL_S)
            if not is_lost():
                writer.write(data)
    except OSError:
        pass
    writer.transport.abort()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` holds, for at most `WAIT_S`."""
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(POLL_S)
