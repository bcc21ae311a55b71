"""The port to domain events and public events.

A domain event is any JSON object published on `<stack>.event.<name…>`. Its identity is the header
`Nats-Msg-Id`, else `ce-id` (CloudEvents), else `<stream>:<sequence>`. A copy by `republish` names
the original event in a header of its own. Messages of any other JetStream stream are domain events
to an actor that reads a `ForeignStream`: the subject is the name, and `<stream>/<claimed id>`, else
`<stream>:<sequence>`, the identity.

An actor's events are shared among its nodes (`open`, `open_feed`): in no order if several pull
them, in the order of their stream if one does. `send` publishes to any other subject that a stream
captures. `fence` makes one process the only one that publishes in a name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from streams.json import JsonObject
from streams.model.foreign_streams import ForeignStream
from streams.model.triggers import CloudEvent
from streams.ports.delivery import OrderedSource, Unreadable

EVENT_BYTES_MAX: Final = 512 * 1024
"""Largest domain event an episode can open on; its payload is kept in the episode's journal,
so it must leave room for the rest of a commit under the server's 1 MiB default limit."""

SINCE_MIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
SINCE_MAX: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""The earliest and the latest time that events are asked for since; all streams lie between.
The server counts nanoseconds in 64 bits, and times beyond 1677 and 2262 come out as others."""

HOPS_MAX: Final = 16
"""Longest chain of engine-made events that may wake actors."""


PAGE_MAX: Final = 1_000
"""Most events of one page."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class DomainEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fact from the world, as the engine received it."""

    id: str
    name: str
    """Dotted, without the stack; of a feed, the subject as it is."""
    payload: JsonObject
    seq: int
    """Stream sequence, from 1."""
    at: datetime
    """When the server stored it."""
    hops: int = 0
    cloud: CloudEvent | None = None
    """Of a CloudEvent: its headers."""
    stream: str = ""
    """The feed's stream; empty for the stack's own events."""
    follows: str | msgspec.UnsetType = msgspec.UNSET
    """Of a public event: `<stream>/<sequence>` of the commit that it follows from."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message to others is kept."""

    stream: str
    seq: int
    """Stream sequence, from 1: the first one's if the stream knew its id."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is ready to be published."""

    name: str
    data: bytes
    """As `streams.wire.messages.event_body` encodes it."""
    id: str
    """The same `id` within two minutes is kept once."""
    hops: int = 0
    trace: str = ""
    """W3C `traceparent`; empty for none."""
    follows: str = ""
    """`<stream>/<sequence>` of the commit that it follows from; empty: from none."""


class FencedWriter(Protocol):
    """Publishes until another process takes over. Use it from one task at a time."""

    async def publish(self, events: Sequence[Publication]) -> None:
        """Publish `events` in this order.

        Raises:
            VersionConflict: another process has taken over. A part of them may be published.
            TooLarge: one is over the server's limit. Those before it are published.
            Unavailable, UnknownOutcome: a part may be published; publishing all again is safe.
        """


class DomainEvents(Protocol):
    """Domain events, shared with every program that speaks NATS."""

    async def publish(
        self,
        name: str,
        payload: JsonObject,
        *,
        id: str,
        hops: int = 0,
        trace: str = "",
    ) -> int:
        """Publish one domain event; return its sequence, the first one's if it was a duplicate.

        The same `id` within two minutes is kept once.

        Raises:
            BadName: `name` is not a dotted event name.
            TooLarge: over `EVENT_BYTES_MAX` bytes.
            TypeError, ValueError: `payload` has something JSON cannot express, such as `nan`.
            UnknownOutcome: no answer. Publishing again with the same `id` is safe.
            Unavailable: the server refused. It is not published.
        """

    async def fence(self, name: str, payload: JsonObject, *, id: str) -> FencedWriter:
        """Publish one domain event, and return a writer that works until its next one.

        From then on the server refuses what any earlier writer of this `name` publishes. `id` must
        be unique. Raises as `publish`.
        """

    async def republish(self, seq: int, *, id: str) -> int | None:
        """Publish the event at `seq` again, as it came, and return its new sequence.

        None: it is gone. It stays the same event: what it opened is not opened again. Raises as
        `publish`; it is `TooLarge` if an id of its own puts it over the server's limit.
        """

    async def send(
        self,
        subject: str,
        data: bytes,
        *,
        id: str,
        headers: Mapping[str, str] = NO_HEADERS,
        hops: int = 0,
    ) -> Sent:
        """Send `data` to `subject`, which is not the engine's own, once it is kept there.

        A stream keeps one message of the same `id` within its duplicate window, two minutes unless
        its owner chose another. `hops` counts as an event's, should an actor be woken by it.

        Raises:
            BadName: `subject` is no subject, the server's, or the stack's own and no event's; or
                one of `headers` is reserved.
            TooLarge: over the limit of the server or of that stream.
            Uncaptured: no stream keeps what is sent there. Nobody has got it for good.
            Incompatible: this user may not publish there.
            UnknownOutcome: no answer. Sending again with the same `id` is safe in that window.
            Unavailable: the server or the stream refused. It is not kept.
        """

    async def open(
        self, actor: str, names: Collection[str], *, after: int | None = None
    ) -> OrderedSource[DomainEvent | Unreadable]:
        """Return the events called one of `names`, shared by all gates of `actor`.

        Nodes may run different versions of an actor, so opening only ever widens what the gates
        share: each gets the names of all, and hands back what it does not know. Only `unwatch`
        narrows it.

        The first time an actor is opened it starts just past sequence `after`, or without one with
        what is published from then on; after that it continues where its nodes left off.
        """

    async def open_feed(
        self, actor: str, feed: ForeignStream, *, after: int | None = None
    ) -> OrderedSource[DomainEvent | Unreadable]:
        """Return the events of `feed`, shared by all gates of `actor`.

        The first time it starts just past sequence `after`, or without one at the feed's `start`;
        after that it continues where it was. A work queue is always read from its beginning: it
        keeps only what nobody has done yet, and drops what we acknowledge. If the stream was
        deleted and made anew, all that it has is new: `"new"` is `"all"` then, and events without
        an id of their own get other ids than those of the first stream.

        Raises:
            NoSuchStream: there is none of that name.
            Incompatible: the server refuses us this stream or this subject.
        """

    async def stored(
        self, name: str, *, after: int, up_to: int
    ) -> Sequence[DomainEvent | Unreadable]:
        """Return the stack's own events called `name` past sequence `after`, up to `up_to`.

        All that were acknowledged to their publishers and are still kept, oldest first.
        """

    async def page(
        self, *, after: int, since: datetime | None = None
    ) -> Sequence[DomainEvent | Unreadable]:
        """Return the oldest of the stack's own events past sequence `after`; none: no more.

        Up to `PAGE_MAX` of those that are still kept, of all names. Without `after`, that is 0,
        only those that were stored at `since` or later.
        """

    async def watched(self, actor: str) -> frozenset[str]:
        """Return the names of the events that all gates of `actor` share, of any version."""

    async def unwatch(self, actor: str, names: Collection[str]) -> None:
        """Have the gates of `actor` share no events called one of `names` from now on.

        For names that no version watches any more: what is published until they are opened again
        may be missed. What the gates were delivered before comes again until it is acknowledged.

        Raises:
            Incompatible: the server refuses it.
        """

    async def backlog(self, actor: str, feeds: Collection[ForeignStream] = ()) -> int:
        """Return how many messages the gates of `actor` have not acknowledged.

        Those of our events and of `feeds`; of what nobody has opened, none.
        """
