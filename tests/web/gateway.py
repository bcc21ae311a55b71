"""What stands between a browser and the console, and fails as networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

CHUNK: Final = 65_536

BAD_GATEWAY: Final = (
    b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 28\r\n"
    b"connection: close\r\n\r\n<h1>502 by the gateway</h1>\r\n"
)


class Mode(StrEnum):
    """What the gateway does."""

    PASS = "passes everything on"
    REFUSE = "accepts no connection"
    BAD = "answers 502"
    SILENT = "passes nothing on, and closes nothing"


class Gateway:
    """Passes connections on, or does not."""

    def __init__(self, to: str) -> None:
        parts = urlsplit(to)
        self._to = (parts.hostname, parts.port)
        self._mode, self._moving = Mode.PASS, asyncio.Event()
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> None:
        """Listen where it listened before, or at a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def turn(self, mode: Mode) -> None:
        """Do something else from now on. Connections are cut, but those that fall silent."""
        if mode is Mode.REFUSE:
            await self._stop()
        elif self._mode is Mode.REFUSE:
            await self.start()
        self._mode = mode
        if mode is not Mode.SILENT:
            self.cut()

    def cut(self) -> None:
        """End all connections."""
        for each in list(self._streams):
            each.transport.abort()

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def end(self) -> None:
        """Stop for good."""
        if self._mode is not Mode.REFUSE:
            await self._stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.add(writer)
        try:
            if self._mode is Mode.BAD:
                await reader.read(CHUNK)
                writer.write(BAD_GATEWAY)
                await writer.drain()
                return
            there, back = await asyncio.open_connection(*self._to)
            self._streams.add(back)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, back))
                    group.create_task(self._pass(there, writer))
            finally:
                self._streams.discard(back)
                back.close()
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._streams.discard(writer)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self._mode is not Mode.SILENT:
                writer.write(data)
                await writer.drain()
        with suppress(ConnectionError, OSError):
            writer.write_eof()


@asynccontextmanager
async def gateway(to: str) -> AsyncIterator[Gateway]:
    """Yield a gateway before an address."""
    made = Gateway(to)
    await made.start()
    try:
        yield made
    finally:
        await made.end()
