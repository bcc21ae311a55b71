"""A stream that is no stack's, as its owner sees it: one in memory, and one on a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nats.js import JetStreamContext

from streams.memory.domain_events import MemoryDomainEvents
from streams.model.foreign_streams import FeedStart, ForeignStream


class Orders(Protocol):
    """A shop's stream. Its subjects are `<its name>.<what happened>`."""

    name: str

    async def publish(
        self, what: str, data: bytes = b"{}", headers: Mapping[str, str] | None = None
    ) -> int:
        """Publish on the subject of `what`; the sequence is returned."""

    async def remake(self) -> None:
        """Delete the stream, and make one of its name."""

    async def delete(self) -> None:
        """Delete the stream."""

    def feed(self, what: str = ">", *, start: FeedStart = "new") -> ForeignStream:
        """Return the feed of what has happened on the subject of `what`."""
        return ForeignStream(stream=self.name, subject=f"{self.name}.{what}", start=start)


class MemoryOrders(Orders):
    def __init__(self, world: MemoryDomainEvents, name: str):
        self.name = name
        self._world = world
        self._stream = world.add_stream(name, captures=[f"{name}.>"])

    async def delete(self):
        self._world.remove_stream(self.name)

    async def remake(self):
        await self.delete()
        self._stream = self._world.add_stream(self.name, captures=[f"{self.name}.>"])

    async def publish(self, what, data=b"{}", headers=None):
        return self._stream.publish(f"{self.name}.{what}", data, headers or {})


class ServerOrders(Orders):
    def __init__(self, js: JetStreamContext, name: str):
        self.name = name
        self._js = js

    async def publish(self, what, data=b"{}", headers=None):
        ack = await self._js.publish(f"{self.name}.{what}", data, headers=dict(headers or {}))
        return ack.seq

    async def delete(self):
        await self._js.delete_stream(self.name)

    async def remake(self):
        await self.delete()
        await self._js.add_stream(name=self.name, subjects=[f"{self.name}.>"])
