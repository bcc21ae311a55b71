"""A wire between a client and a server that a test can cut, and on which it can lose bytes.

Killing a server loses a request and its answer together. The cases that matter most need
to lose only one of them: an answer whose request was stored, or a request that never came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

CHUNK_BYTES: Final = 64 * 1024
POLL_S: Final = 0.005
WAIT_S: Final = 10.0


class Tap(NamedTuple):
    """Who listens in on one connection. Each is given what went through, and nothing lost."""

    on_request: Callable[[bytes], None]
    on_answer: Callable[[bytes], None]


Gate: TypeAlias = Callable[[bytes], Iterable[bytes]]
"""Cuts what a client sends into pieces. A fault of the wire that begins between two of them holds,
or loses, all that follows. A piece may come with later bytes."""


def _nobody(_: bytes) -> None:
    pass


def _as_it_is(data: bytes) -> Iterable[bytes]:
    return (data,)


class Wire:
    """A TCP proxy in front of one server.

    With `tap`, each connection has somebody listen in; with `gate`, somebody cut its requests.
    """

    def __init__(
        self,
        url: str,
        *,
        tap: Callable[[], Tap] = lambda: Tap(_nobody, _nobody),
        gate: Callable[[], Gate] = lambda: _as_it_is,
    ) -> None:
        self._server_port = urlsplit(url).port
        self._tap, self._gate = tap, gate
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.loses_requests = False
        self.loses_answers = False
        self.holds_answers = False
        """Keeps answers back until it no longer does."""
        self.holds_requests = False
        self.is_blocked = False
        """Refuses new connections."""
        self.rewrites: dict[bytes, bytes] = {}
        """What answers have instead of what the server wrote: as many bytes."""

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
        self.loses_requests = self.loses_answers = False
        self.holds_requests = self.holds_answers = False

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
        tap = self._tap()
        self._pump(
            reader,
            far_writer,
            tap.on_request,
            self._gate(),
            is_lost=lambda: self.loses_requests,
            is_held=lambda: self.holds_requests,
        )
        self._pump(
            far_reader,
            writer,
            tap.on_answer,
            self._rewritten,
            is_lost=lambda: self.loses_answers,
            is_held=lambda: self.holds_answers,
        )

    def _rewritten(self, data: bytes) -> Iterable[bytes]:
        for old, new in self.rewrites.items():
            data = data.replace(old, new)
        return (data,)

    def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Callable[[bytes], None],
        gate: Gate,
        *,
        is_lost: Callable[[], bool],
        is_held: Callable[[], bool],
    ) -> None:
        task = asyncio.create_task(_pump(reader, writer, heard, gate, is_lost, is_held))
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)


async def _pump(  # noqa: PLR0917 - one direction of a wire, and its faults
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    heard: Callable[[bytes], None],
    gate: Gate,
    is_lost: Callable[[], bool],
    is_held: Callable[[], bool],
) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            for piece in gate(data):
                while is_held() and not writer.is_closing():  # noqa: ASYNC110 - a test's flag
                    await asyncio.sleep(POLL_S)
                if not is_lost():
                    writer.write(piece)
                    heard(piece)
    except OSError:
        pass
    writer.transport.abort()


class Wires:
    """The wires of one client to several servers, which go wrong together."""

    def __init__(self, wires: Sequence[Wire]) -> None:
        self._wires = wires

    @property
    def url(self) -> str:
        return ",".join(wire.url for wire in self._wires)

    def lose_answers(self) -> None:
        for wire in self._wires:
            wire.loses_answers = True

    def block(self) -> None:
        """Drop every connection, and refuse new ones until `unblock`."""
        for wire in self._wires:
            wire.is_blocked = True
            wire.cut()

    def unblock(self) -> None:
        for wire in self._wires:
            wire.is_blocked = False

    def hold(self) -> None:
        """Let nothing through, and close nothing, until `let_go`: a network that is silent."""
        for wire in self._wires:
            wire.holds_requests = wire.holds_answers = True

    def let_go(self) -> None:
        for wire in self._wires:
            wire.holds_requests = wire.holds_answers = False


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` holds, for at most `WAIT_S`."""
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(POLL_S)
