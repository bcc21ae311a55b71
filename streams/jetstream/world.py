"""The world on JetStream: domain events, published and shared out to gates."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from streams.delivery import Delivery, Source, Unreadable
from streams.jetstream import stored
from streams.jetstream.arrival import Arrival
from streams.jetstream.consumer import DurableConsumer
from streams.jetstream.grouping import Groups, store_surely
from streams.jetstream.link import Link, wait_set
from streams.jetstream.publish import Write
from streams.jetstream.source import JetStreamSource
from streams.json import JsonObject
from streams.parsing import copy_headers, event_body, event_headers, parse_event
from streams.subjects import Stack, Stream
from streams.world import DomainEvent


class JetStreamWorld:
    """`World` on the events stream of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        """Publish and pull through `link`."""
        self._link = link
        self._stack = stack
        self._stream = stack.stream(Stream.EVENTS)
        self._group = Groups(link).to(self._stream)

    async def publish(
        self,
        name: str,
        payload: JsonObject,
        *,
        id: str,
        hops: int = 0,
        trace: str = "",
    ) -> int:
        """Publish one domain event. See `World.publish`."""
        subject = self._stack.event(name)
        more = event_headers(id=id, hops=hops, trace=trace)
        write = Write(subject, event_body(name, payload), more, key=id)
        return (await store_surely(self._link, self._group, write)).seq

    async def republish(
        self,
        seq: int,
        *,
        id: str,
    ) -> int | None:
        """Publish again what is at `seq`. See `World.republish`."""
        first = await stored.at(self._link, self._stream, seq)
        if first is None:
            return None
        more = copy_headers(first.headers, id=id, stream=self._stream, seq=seq)
        write = Write(first.subject, first.data, more, key=id)
        return (await store_surely(self._link, self._group, write)).seq

    async def open(self, actor: str, names: Collection[str]) -> Source[DomainEvent | Unreadable]:
        """Return the actor's events. See `World.open`."""
        if not names:
            return SilentSource()
        consumer = DurableConsumer(
            stream=self._stream,
            name=self._stack.gate_durable(actor),
            filters=tuple(sorted({self._stack.event(name) for name in names})),
            starts_new=True,
        )
        await consumer.ensure(self._link)
        return JetStreamSource(self._link, consumer, self._parse)

    def _parse(self, arrived: Arrival) -> DomainEvent | Unreadable:
        return parse_event(
            arrived.data,
            arrived.headers,
            stack=self._stack,
            stream=self._stream,
            subject=arrived.subject,
            seq=arrived.seq,
            at=arrived.at,
        )


class SilentSource:
    """`Source` of nothing, for an actor that listens to nothing."""

    pending = 0

    def __init__(self) -> None:
        """Begin to be silent."""
        self._closed = asyncio.Event()

    async def receive(
        self,
        *,
        room: int,  # noqa: ARG002 - as every source is asked
        wait_s: float,
    ) -> Sequence[Delivery[DomainEvent | Unreadable]]:
        """Return nothing, after `wait_s` or when closed."""
        await wait_set(self._closed, timeout_s=wait_s)
        return ()

    async def pause(self) -> None:
        """Go on asking for nothing."""

    async def close(self) -> None:
        """Let a `receive` that waits return."""
        self._closed.set()
