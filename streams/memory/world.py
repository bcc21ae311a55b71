"""Domain events in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from streams.delivery import Unreadable
from streams.json import JsonObject
from streams.memory.durable import Durable, MemorySource
from streams.memory.stream import MemoryStream, Message
from streams.parsing import copy_headers, event_body, event_headers, parse_event
from streams.subjects import Stack
from streams.world import DomainEvent


class MemoryWorld:
    """See `streams.world.World`."""

    def __init__(self, stream: MemoryStream, *, stack: Stack) -> None:
        self._stream = stream
        self._stack = stack
        self._durables: dict[str, Durable] = {}
        self._watched: defaultdict[str, set[str]] = defaultdict(set)

    async def publish(
        self,
        name: str,
        payload: JsonObject,
        *,
        id: str,
        hops: int = 0,
        trace: str = "",
    ) -> int:
        """See `World.publish`."""
        headers = event_headers(id=id, hops=hops, trace=trace)
        return self.publish_raw(name, event_body(name, payload), headers)

    def publish_raw(self, name: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Publish any bytes as the event `name`, as a foreign NATS client could.

        Returns:
            Its stream sequence: the first one's if its `Nats-Msg-Id` is known.

        Raises:
            BadName: `name` is not a dotted event name.
            TooLarge: over the server's limit for any message.
        """
        return self._stream.publish(self._stack.event(name), data, headers)

    async def republish(self, seq: int, *, id: str) -> int | None:
        """See `World.republish`."""
        if not 0 < seq <= self._stream.last_seq:
            return None
        first = self._stream.at(seq)
        headers = copy_headers(first.headers, id=id, stream=self._stream.name, seq=seq)
        return self._stream.publish(first.subject, first.data, headers)

    async def open(
        self, actor: str, names: Collection[str]
    ) -> MemorySource[DomainEvent | Unreadable]:
        """See `World.open`."""
        name = self._stack.gate_durable(actor)
        subjects = {self._stack.event(each) for each in names}
        if not subjects:
            return MemorySource([self._durable(subjects)], parse=self._parse)
        self._watched[name] |= subjects
        if name not in self._durables:
            self._durables[name] = self._durable(self._watched[name])
        return MemorySource([self._durables[name]], parse=self._parse)

    def _durable(self, subjects: AbstractSet[str]) -> Durable:
        after = self._stream.last_seq
        return Durable(self._stream, after=after, matches=subjects.__contains__)

    def _parse(self, message: Message) -> DomainEvent | Unreadable:
        return parse_event(
            message.data,
            message.headers,
            stack=self._stack,
            stream=self._stream.name,
            subject=message.subject,
            seq=message.seq,
            at=message.at,
        )
