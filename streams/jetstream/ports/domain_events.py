"""Domain events on JetStream: published, and shared among gates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from streams.errors import Incompatible, Unavailable, Uncaptured, UnknownOutcome
from streams.jetstream.connection.link import Link, wait_set
from streams.jetstream.connection.session import NobodyServes
from streams.jetstream.messages import api, stored
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.messages.fenced import JetStreamFencedWriter
from streams.jetstream.messages.grouping import Groups, store_surely
from streams.jetstream.messages.publish import Publisher, Write
from streams.jetstream.ports.consumer import DurableConsumer
from streams.jetstream.ports.feed_queue import FeedQueue, ReadStream, put_read_stream, read_stream
from streams.jetstream.ports.shared_queue import SharedQueue
from streams.jetstream.ports.source import JetStreamSource
from streams.json import JsonObject
from streams.keys import feed_key, queue_key
from streams.layout import Stream
from streams.model.foreign_streams import FeedStart, ForeignStream, start_anew
from streams.ports.bucket import Bucket
from streams.ports.delivery import Delivery, OrderedSource, QueuePosition, Unreadable
from streams.ports.domain_events import NO_HEADERS, DomainEvent, Sent
from streams.subjects import Stack
from streams.wire.messages import (
    copy_headers,
    event_body,
    event_headers,
    parse_event,
    parse_foreign,
)
from streams.wire.outgoing import checked_subject, sent_headers

Parse: TypeAlias = Callable[[Arrival], DomainEvent | Unreadable]

_WORK_QUEUE: Final = "workqueue"
"""Retention of a stream that keeps a message until it is acknowledged."""


class JetStreamDomainEvents:
    """`DomainEvents` on the events stream of one stack."""

    def __init__(self, link: Link, stack: Stack, gates: Bucket) -> None:
        """Publish and read through `link`; `gates` has the filters of the actors' queues."""
        self._link = link
        self._stack = stack
        self._gates = gates
        self._stream = stack.stream(Stream.EVENTS)
        self._parse = partial(parse_event, stack=stack, stream=self._stream)
        self._group = Groups(link).to(self._stream)
        self._publisher = Publisher(link)

    async def publish(
        self,
        name: str,
        payload: JsonObject,
        *,
        id: str,
        hops: int = 0,
        trace: str = "",
    ) -> int:
        """See `DomainEvents.publish`."""
        subject = self._stack.event(name)
        more = event_headers(id=id, hops=hops, trace=trace)
        write = Write(subject, event_body(name, payload), more, key=id)
        return (await store_surely(self._link, self._group, write)).seq

    async def fence(self, name: str, payload: JsonObject, *, id: str) -> JetStreamFencedWriter:
        """See `DomainEvents.fence`."""
        seq = await self.publish(name, payload, id=id)
        found = await stored.extent(self._link, self._stream)
        return JetStreamFencedWriter(
            self._link, self._stack, self._stack.event(name), seq, is_one=found.replicas == 1
        )

    async def republish(
        self,
        seq: int,
        *,
        id: str,
    ) -> int | None:
        """See `DomainEvents.republish`."""
        first = await stored.at(self._link, self._stream, seq)
        if first is None:
            return None
        more = copy_headers(first.headers, id=id, stream=self._stream, seq=seq)
        write = Write(first.subject, first.data, more, key=id)
        return (await store_surely(self._link, self._group, write)).seq

    async def send(
        self,
        subject: str,
        data: bytes,
        *,
        id: str,
        headers: Mapping[str, str] = NO_HEADERS,
        hops: int = 0,
    ) -> Sent:
        """See `DomainEvents.send`."""
        checked_subject(subject, stack=self._stack)
        write = Write(subject, data, sent_headers(headers, id=id, hops=hops), key=id)
        try:
            ack = await self._publisher.store(write)
        except NobodyServes as error:
            # A stream that is electing its leader does not answer either.
            if await self._is_captured(subject):
                raise
            raise Uncaptured(subject) from error
        if not ack.stream:
            raise UnknownOutcome(subject, detail="whoever answered is no stream")
        return Sent(stream=ack.stream, seq=ack.seq)

    async def open(
        self, actor: str, names: Collection[str], *, after: int | None = None
    ) -> OrderedSource[DomainEvent | Unreadable]:
        """See `DomainEvents.open`."""
        if not names:
            return NullSource()
        start: FeedStart = "new" if after is None else after + 1
        return await self._share(self._gate(actor, names, start), self._parse)

    async def open_feed(
        self, actor: str, feed: ForeignStream, *, after: int | None = None
    ) -> OrderedSource[DomainEvent | Unreadable]:
        """See `DomainEvents.open_feed`."""
        found = await stored.extent(self._link, feed.stream)
        key = feed_key(actor, feed.stream, feed.subject)
        read = await read_stream(self._gates, key)
        known = read or ReadStream(first=found.created, newest=found.created)
        start = feed.start if after is None else after + 1
        if known.newest != found.created:  # guard: remade-stream-all-new
            start = start_anew(feed)
        wanted = None if found.retention == _WORK_QUEUE else start
        # guard: ids-of-remade-stream-differ
        remade = "" if known.first == found.created else found.created
        source = await self._share(
            self._feed(actor, feed, wanted, created=found.created),
            partial(parse_foreign, stream=feed.stream, remade=remade),
        )
        now = ReadStream(first=known.first, newest=found.created)
        if now != read:  # guard: read-stream-remembered
            await put_read_stream(self._gates, key, now)
        return source

    async def stored(
        self, name: str, *, after: int, up_to: int
    ) -> Sequence[DomainEvent | Unreadable]:
        """See `DomainEvents.stored`."""
        found = await stored.all_between(
            self._link, self._stream, self._stack.event(name), after=after, up_to=up_to
        )
        return [self._parse(each) for each in found]

    async def page(
        self, *, after: int, since: datetime | None = None
    ) -> Sequence[DomainEvent | Unreadable]:
        """See `DomainEvents.page`."""
        begins = since if not after else None
        found = await stored.page_after(
            self._link, self._stream, self._stack.every_event(), seq=after, since=begins
        )
        return [self._parse(each) for each in found]

    async def watched(self, actor: str) -> frozenset[str]:
        """See `DomainEvents.watched`."""
        subjects = await self._gate(actor).filters_there(self._link)
        return frozenset(self._stack.event_name_of(each) for each in subjects)

    async def unwatch(self, actor: str, names: Collection[str]) -> None:
        """See `DomainEvents.unwatch`."""
        await self._gate(actor).narrow(self._link, without=self._filters(names))

    async def backlog(self, actor: str, feeds: Collection[ForeignStream] = ()) -> int:
        """See `DomainEvents.backlog`."""
        consumers = self._consumers(actor, feeds)
        return sum([await each.backlog(self._link) for each in consumers])

    async def _is_captured(self, subject: str) -> bool:
        try:
            answer = await api.call(self._link, "STREAM.NAMES", {"subject": subject})
        except (api.RequestRefused, Incompatible) as error:
            raise Unavailable(subject, detail=f"nobody answers there, and {error}") from error
        return bool(answer.get("streams"))

    async def _share(
        self, consumer: DurableConsumer, parse: Parse
    ) -> OrderedSource[DomainEvent | Unreadable]:
        acknowledged_seq = await consumer.ensure(self._link)
        return JetStreamSource(self._link, consumer, parse, after=acknowledged_seq)

    def _consumers(self, actor: str, feeds: Collection[ForeignStream]) -> list[DurableConsumer]:
        return [self._gate(actor), *(self._feed(actor, feed) for feed in feeds)]

    def _gate(
        self, actor: str, names: Collection[str] = (), start: FeedStart = "new"
    ) -> SharedQueue:
        return SharedQueue(
            stream=self._stream,
            name=self._stack.gate_durable(actor),
            filters=self._filters(names),
            start=start,
            bucket=self._gates,
            key=queue_key(actor),
        )

    def _feed(
        self, actor: str, feed: ForeignStream, start: FeedStart | None = None, *, created: str = ""
    ) -> FeedQueue:
        return FeedQueue(
            created=created,
            stream=feed.stream,
            name=self._stack.feed_durable(actor, feed.subject),
            filters=(feed.subject,),
            start=start,
        )

    def _filters(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(sorted({self._stack.event(name) for name in names}))


class NullSource:
    """`OrderedSource` of an actor that watches no events.

    A consumer without a filter would get everything, so there is none at all.
    """

    pending = 0

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def receive(
        self,
        *,
        room: int,  # noqa: ARG002 - as every source is asked
        wait_s: float,
        check: Callable[[], None] | None = None,  # noqa: ARG002 - nothing is ever requested
    ) -> Sequence[Delivery[DomainEvent | Unreadable]]:
        """Return nothing, after `wait_s` or when closed."""
        await wait_set(self._closed, timeout_s=wait_s)
        return ()

    async def position(self) -> QueuePosition:
        """Return that of a queue that nothing ever comes to."""
        return QueuePosition()

    async def pause(self) -> None:
        """Go on asking for nothing."""

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """Hand back nothing."""
        return is_whole

    async def close(self) -> None:
        """Let a `receive` that waits return."""
        self._closed.set()
