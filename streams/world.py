"""The port to the world: domain events in, public events out.

A domain event is any JSON object published on `<stack>.event.<name…>`. Its identity is
the header `Nats-Msg-Id`, else `ce-id` (CloudEvents), else `<stream>:<sequence>`. A copy of
it that `republish` made names the event it is a copy of in a header of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final, Protocol

import msgspec

from streams.delivery import Source, Unreadable
from streams.json import JsonObject

EVENT_BYTES_MAX: Final = 512 * 1024
"""Largest domain event an episode can open on; its payload is kept in the episode's journal,
so it must leave room for the rest of a commit under the server's 1 MiB default limit."""

HOPS_MAX: Final = 16
"""Longest chain of engine-made events that may wake actors."""


class DomainEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fact from the world, as the engine received it."""

    id: str
    name: str
    """Dotted, without the stack."""
    payload: JsonObject
    seq: int
    """Stream sequence, from 1."""
    at: datetime
    """When the server stored it."""
    hops: int = 0


class World(Protocol):
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
        """Publish one domain event. The same `id` within two minutes is kept once.

        Returns:
            Its stream sequence: the first one's if it was a duplicate.

        Raises:
            BadName: `name` is not a dotted event name.
            TooLarge: over `EVENT_BYTES_MAX` bytes.
            UnknownOutcome: no answer. Publishing again with the same `id` is safe.
            Unavailable: the server refused. It is not published.
        """

    async def republish(self, seq: int, *, id: str) -> int | None:
        """Publish again, as it came, what the stream of events holds at `seq`.

        It stays the same event: what it opened before is not opened again. The same `id` within
        two minutes is kept once.

        Returns:
            Its new stream sequence; None if the stream holds no message at `seq` any more.

        Raises:
            TooLarge: it came at the server's limit, and an id of its own makes it too large.
            UnknownOutcome: no answer. Publishing again with the same `id` is safe.
            Unavailable: the server refused. It is not published.
        """

    async def open(self, actor: str, names: Collection[str]) -> Source[DomainEvent | Unreadable]:
        """Return the events called one of `names`, shared by all gates of `actor`.

        Nodes may run different versions of an actor, so opening only ever widens what the gates
        share: each gets the names of all, those too that only a past version asked for, and
        hands back what it knows nothing of. Nothing narrows it but an operator.

        The first time an actor is opened it starts with what is published from then on; after
        that it continues where its nodes left off, however long they were down.

        Raises:
            Unavailable: no answer from the server.
        """
