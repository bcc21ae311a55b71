"""nats-py's client, made to end at once and completely when its connection is lost.

nats-py 2.16 flushes what it still holds while it closes. On a lost connection that raises,
or waits for a peer that no longer reads, and then subscriptions and callbacks are never
told (measured with a stopped server). And it cannot be closed when `connect` has refused
its arguments. This subclass is the one place that knows the client's insides; every session
test runs through it.
"""

from __future__ import annotations

import asyncio

from nats.aio.client import Client
from nats.aio.transport import TcpTransport


class BriefClient(Client):
    """A client for one connection: it never reconnects, and closing it never waits."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002
        if self._flush_queue is None:  # `connect` refused its arguments: there is nothing to end.
            self._status = status
            return
        self._pending.clear()
        self._pending_data_size = 0
        _abort(self._transport)
        await super()._close(status, do_cbs)


def _abort(transport: object) -> None:
    """Drop the connection without sending what the socket could not take yet."""
    if isinstance(transport, TcpTransport):
        writer: asyncio.StreamWriter | None = transport._io_writer  # noqa: SLF001 - has no abort
        if writer is not None:
            writer.transport.abort()
