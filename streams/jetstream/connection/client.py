"""nats-py's client with a short path for messages, and with a complete end.

nats-py 2.16 does what is hard to get right: connecting, TLS, credentials, the servers of a cluster,
the pings that notice a dead server. Two things are replaced; this is the one module that depends on
the client's insides, and every test of the adapters runs through it.

**The path of a message.** nats-py takes four tasks and two queues for one request and its answer.
Here all that is sent during one turn of the event loop leaves in one write at its end, and what
arrives reaches its listener in the turn in which it is read (numbers:
docs/adr/0015-lean-client-path.md). Over a websocket nats-py still writes.

**The end.** nats-py flushes while it closes. On a lost connection that raises, or waits for a peer
that no longer reads, and then subscriptions and callbacks are never told (measured with a stopped
server); it cannot be closed when `connect` has refused its arguments; a listener that raises leaves
a client that is connected and deaf; and a cancelled flush does the same when its answer comes late.
Here whatever ends the reading ends the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.errors import Error, ProtocolError, UnexpectedEOF

from streams.jetstream.connection.protocol import Parser, Received, subscription

Listener: TypeAlias = Callable[[Received], None]
"""Takes a message in the turn in which it was read. What it raises ends the connection."""

READ_BYTES_MAX: Final = 256 * 1024
"""Most that is read at once: the turn of the event loop should stay short."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that may wait for a server that does not read; more are refused."""

_PING: Final = b"PING\r\n"
_PONG: Final = b"PONG\r\n"


class BriefClient(Client):
    """A client for one connection: it never reconnects, and closing it never waits."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[int, Listener] = {}
        self._parser = Parser(self._deliver)
        self._unsent: list[bytes] = []
        self._was_congested = False

    @property
    def is_congested(self) -> bool:
        """Whether the server has left more than `UNSENT_BYTES_MAX` unread."""
        writer = _writer(self._transport) if self._was_congested else None
        return writer is not None and writer.get_write_buffer_size() > UNSENT_BYTES_MAX

    def post(self, data: bytes) -> None:
        """Send `data` with whatever else is sent in this turn of the event loop."""
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent.append(data)

    def listen(self, subject: str, listener: Listener) -> int:
        """Have each message on `subject` given to `listener`; return a number for `mute`.

        Raises:
            BadSubjectError: nobody can listen there.
            Error: not connected.
        """
        if not self.is_connected:
            raise Error("not connected")
        self._sid += 1
        self.post(subscription(subject, self._sid))
        self._listeners[self._sid] = listener
        return self._sid

    def leave(self, number: int) -> None:
        """Tell the server that nobody listens any more. What is on its way still arrives."""
        self.post(b"UNSUB %d\r\n" % number)

    def mute(self, number: int) -> None:
        """Give the listener nothing more."""
        self._listeners.pop(number, None)

    def _deliver(self, number: int, msg: Received) -> None:
        listener = self._listeners.get(number)
        if listener is not None:
            listener(msg)

    def _write(self) -> None:
        unsent, self._unsent = self._unsent, []
        data = unsent[0] if len(unsent) == 1 else b"".join(unsent)
        writer = _writer(self._transport)
        if writer is None:
            self._write_otherwise(data)
        elif not writer.is_closing():
            writer.write(data)
            self._was_congested = writer.get_write_buffer_size() > UNSENT_BYTES_MAX

    def _write_otherwise(self, data: bytes) -> None:
        if data and self._flush_queue is not None and self.is_connected:
            self._pending.append(data)
            self._pending_data_size += len(data)
            self._flush_queue.put_nowait(self._loop.create_future())

    async def _read_loop(self) -> None:
        """Take what arrives until the connection ends, for whatever reason; then end."""
        error: Exception = UnexpectedEOF()
        try:
            while self._transport is not None:
                data = await self._transport.read(READ_BYTES_MAX)
                if not data:
                    break
                for line in self._parser.feed(data):
                    await self._obey(line)
        except (OSError, ProtocolError) as lost:
            error = lost
        finally:
            if not self.is_closed:
                await self._error_cb(error)
            await self._process_op_err(error)

    async def _obey(self, line: bytes) -> None:
        match line:
            case b"PING":
                self.post(_PONG)
            case b"PONG":
                self._note_pong()
            case _:
                await self._ps.parse(line + b"\r\n")

    def _note_pong(self) -> None:
        self._pings_outstanding = 0
        self._pongs_received += 1
        if self._pongs and not (asked := self._pongs.pop(0)).done():
            asked.set_result(True)

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        self._pongs.append(future or self._loop.create_future())
        self.post(_PING)

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        self.post(cmd)

    async def _flush_pending(self, force_flush: bool = False) -> None:
        """Do nothing: what is posted leaves by itself."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        if self._flush_queue is None:  # `connect` refused its arguments: there is nothing to end.
            self._status = status
            return
        self._unsent.clear()
        self._pending.clear()
        self._pending_data_size = 0
        self._listeners.clear()
        writer = _writer(self._transport)
        if writer is not None:
            writer.abort()
        await super()._close(status, do_cbs)


def _writer(transport: object) -> asyncio.WriteTransport | None:
    if not isinstance(transport, TcpTransport):
        return None
    writer: asyncio.StreamWriter | None = transport._io_writer  # noqa: SLF001 - no other way
    return writer.transport if writer is not None else None
