"""A stream that is no stack's, as its owner sees it: one in memory, and one on a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nats.js import JetStreamContext

from streams.memory.stream import MemoryStream
from streams.model.foreign_streams import FeedStart, ForeignStream


class Orders(Protocol):
    """A shop's stream. Its subjects are `<its name>.<what happened>`."""

    name: str

    async def publish(
        self, what: str, data: bytes = b"{}", headers: Mapping[str, str] | None = None
    ) -> int:
        """Publish on the subject of `what`; the sequence is returned."""

    def feed(self, what: str = ">", *, start: FeedStart = "new") -> ForeignStream:
        """Return the feed of what has happened on the subject of `what`."""
        return ForeignStream(stream=self.name, subject=f"{self.name}.{what}", start=start)


class MemoryOrders(Orders):
    def __init__(self, stream: MemoryStream):
        self.name = stream.name
        self._stream = stream

    async def publish(self, what, data=b"{}", headers=None):
        return self._stream.publish(f"{self.name}.{what}", data, headers or {})


class ServerOrders(Orders):
    def __init__(self, js: JetStreamContext, name: str):
        self.name = name
        self._js = js

    async def publish(self, what, data=b"{}", headers=None):
        ack = await self._js.publish(f"{self.name}.{what}", data, headers=dict(headers or {}))
        return ack.seq
