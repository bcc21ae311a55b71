"""Domain events in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from streams.errors import NoSuchStream, Uncaptured, VersionConflict
from streams.json import JsonObject
from streams.memory.durable import Durable, MemorySource
from streams.memory.stream import MemoryStream
from streams.model.foreign_streams import FeedStart, ForeignStream, start_anew
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import NO_HEADERS, PAGE_MAX, DomainEvent, Publication, Sent
from streams.subjects import Stack
from streams.tokens import matches
from streams.wire.messages import (
    copy_headers,
    event_body,
    event_headers,
    parse_event,
    parse_foreign,
)
from streams.wire.outgoing import checked_subject, is_event, sent_headers


@dataclass(frozen=True)
class MemoryFencedWriter:
    """See `streams.ports.domain_events.FencedWriter`."""

    stream: MemoryStream
    stack: Stack
    subject: str
    """Of the fence."""
    seq: int
    """At which the fence must still be."""

    async def publish(self, events: Sequence[Publication]) -> None:
        """See `FencedWriter.publish`."""
        for event in events:
            last = self.stream.last_of(self.subject)
            if last is None or last.seq != self.seq:  # guard: memory-former-writer-refused
                raise VersionConflict(self.subject, expected=self.seq)
            headers = event_headers(
                id=event.id, hops=event.hops, trace=event.trace, follows=event.follows
            )
            self.stream.publish(self.stack.event(event.name), event.data, headers)


class MemoryDomainEvents:
    """See `streams.ports.domain_events.DomainEvents`."""

    def __init__(self, stream: MemoryStream, *, stack: Stack) -> None:
        self._stream = stream
        self._stack = stack
        self._parse = partial(parse_event, stack=stack, stream=stream.name)
        self._foreign: dict[str, MemoryStream] = {}
        self._made: Counter[str] = Counter()
        """How often each of them was made."""
        self._captured: dict[str, MemoryStream] = {}
        """By the patterns of the subjects that `send` may send there."""
        self._first_read: dict[str, MemoryStream] = {}
        """By the names of their durables: which stream was the first of its name."""
        self._durables: dict[str, Durable] = {}
        """By their names, those of feeds after their streams'."""
        self._watched: defaultdict[str, set[str]] = defaultdict(set)

    def add_stream(self, name: str, *, captures: Sequence[str] = ()) -> MemoryStream:
        """Return a new stream that is not ours, for feeds; `publish` to it as its owner would.

        It takes any subject; what is sent to a subject that one of `captures` covers goes there.
        """
        if name in self._foreign:
            raise ValueError(f"there is a stream {name!r} already")
        self._foreign[name] = MemoryStream(name, clock=self._stream.clock)
        self._made[name] += 1
        self._captured |= dict.fromkeys(captures, self._foreign[name])
        return self._foreign[name]

    def remove_stream(self, name: str) -> None:
        """Delete a stream that is not ours, with all that reads it."""
        stream = self._foreign.pop(name)
        self._captured = {on: each for on, each in self._captured.items() if each is not stream}
        self._durables = {
            of: each for of, each in self._durables.items() if each.stream is not stream
        }
        stream.delete()

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
        headers = event_headers(id=id, hops=hops, trace=trace)
        return self.publish_raw(name, event_body(name, payload), headers)

    def publish_raw(self, name: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Publish any bytes as the event `name`, as a foreign client could; return the sequence."""
        return self._stream.publish(self._stack.event(name), data, headers)

    async def fence(self, name: str, payload: JsonObject, *, id: str) -> MemoryFencedWriter:
        """See `DomainEvents.fence`."""
        seq = await self.publish(name, payload, id=id)
        return MemoryFencedWriter(self._stream, self._stack, self._stack.event(name), seq)

    async def republish(self, seq: int, *, id: str) -> int | None:
        """See `DomainEvents.republish`."""
        if not 0 < seq <= self._stream.last_seq:
            return None
        first = self._stream.at(seq)
        headers = copy_headers(first.headers, id=id, stream=self._stream.name, seq=seq)
        return self._stream.publish(first.subject, first.data, headers)

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
        stream = self._capturing(subject)
        seq = stream.publish(subject, data, sent_headers(headers, id=id, hops=hops))
        return Sent(stream=stream.name, seq=seq)

    def published(self) -> Sequence[DomainEvent | Unreadable]:
        """Return every event of the stack, in order."""
        return [self._parse(message) for message in self._stream.past(0)]

    def durables(self) -> Iterator[tuple[str, Durable]]:
        """Yield every queue that was ever opened, with its name."""
        yield from self._durables.items()

    async def open(
        self, actor: str, names: Collection[str], *, after: int | None = None
    ) -> MemorySource[DomainEvent | Unreadable]:
        """See `DomainEvents.open`."""
        name = self._stack.gate_durable(actor)
        subjects = self._subjects(names)
        start = self._stream.last_seq if after is None else after
        if not subjects:
            return MemorySource([self._durable(subjects, start)], parse=self._parse)
        self._watched[name] |= subjects
        if name not in self._durables:
            self._durables[name] = self._durable(self._watched[name], start)
        return MemorySource([self._durables[name]], parse=self._parse)

    async def open_feed(
        self, actor: str, feed: ForeignStream, *, after: int | None = None
    ) -> MemorySource[DomainEvent | Unreadable]:
        """See `DomainEvents.open_feed`."""
        name, stream = self._feed_name(actor, feed), self._held(feed)
        is_anew = self._first_read.setdefault(name, stream) is not stream
        remade = str(self._made[feed.stream]) if is_anew else ""
        if name not in self._durables:
            start = _seq_before(feed.start, stream) if after is None else after
            if is_anew:
                start = _seq_before(start_anew(feed), stream)
            self._durables[name] = Durable(
                stream, after=start, matches=partial(matches, feed.subject)
            )
        return MemorySource(
            [self._durables[name]],
            parse=partial(parse_foreign, stream=feed.stream, remade=remade),
        )

    async def stored(
        self, name: str, *, after: int, up_to: int
    ) -> Sequence[DomainEvent | Unreadable]:
        """See `DomainEvents.stored`."""
        found = self._stream.of(self._stack.event(name), after=after)
        return [self._parse(each) for each in found if each.seq <= up_to]

    async def page(
        self, *, after: int, since: datetime | None = None
    ) -> Sequence[DomainEvent | Unreadable]:
        """See `DomainEvents.page`."""
        if not after and since is not None:
            after = self._stream.seq_before(since)
        return [self._parse(each) for each in self._stream.past(after, most=PAGE_MAX)]

    async def watched(self, actor: str) -> frozenset[str]:
        """See `DomainEvents.watched`."""
        subjects = self._watched.get(self._stack.gate_durable(actor), ())
        return frozenset(self._stack.event_name_of(each) for each in subjects)

    async def unwatch(self, actor: str, names: Collection[str]) -> None:
        """See `DomainEvents.unwatch`."""
        name = self._stack.gate_durable(actor)
        if name in self._durables:
            self._watched[name] -= self._subjects(names)
            if not self._watched[name]:
                del self._durables[name], self._watched[name]

    async def backlog(self, actor: str, feeds: Collection[ForeignStream] = ()) -> int:
        """See `DomainEvents.backlog`."""
        names = self._names(actor, feeds) & self._durables.keys()
        return sum(self._durables[name].backlog for name in names)

    def _capturing(self, subject: str) -> MemoryStream:
        if is_event(subject, stack=self._stack):
            return self._stream
        for pattern, stream in self._captured.items():
            if matches(pattern, subject):
                return stream
        raise Uncaptured(subject)

    def _held(self, feed: ForeignStream) -> MemoryStream:
        try:
            return self._foreign[feed.stream]
        except KeyError as error:
            raise NoSuchStream(feed.stream) from error

    def _names(self, actor: str, feeds: Collection[ForeignStream]) -> set[str]:
        return {self._stack.gate_durable(actor), *(self._feed_name(actor, feed) for feed in feeds)}

    def _feed_name(self, actor: str, feed: ForeignStream) -> str:
        return f"{feed.stream}/{self._stack.feed_durable(actor, feed.subject)}"

    def _subjects(self, names: Collection[str]) -> set[str]:
        return {self._stack.event(name) for name in names}

    def _durable(self, subjects: AbstractSet[str], after: int) -> Durable:
        return Durable(self._stream, after=after, matches=subjects.__contains__)


def _seq_before(start: FeedStart, stream: MemoryStream) -> int:
    match start:
        case "new":
            return stream.last_seq
        case "all":
            return 0
        case datetime() as since:
            return stream.seq_before(since)
        case int() as seq:
            return seq - 1
