"""Takes the events of one actor from a stream of others: wait for the stream → take."""

from __future__ import annotations

import asyncio
from typing import Protocol

from engine.runtime.entrance import Entrance
from engine.runtime.episode_crew import EpisodeCrew
from engine.runtime.feeds import find_position, wait_position
from engine.runtime.gate import Gate
from engine.runtime.waits import wait_first
from streams.delivery import Source, Unreadable
from streams.feeds import Feed
from streams.world import DomainEvent


class OpenFeed(Protocol):
    """Opens an actor's queue of a stream of others, from `after` on if that is known."""

    async def __call__(
        self, crew: EpisodeCrew, feed: Feed, *, after: int | None
    ) -> Source[DomainEvent | Unreadable]:
        """Return the queue."""


class FeedGate:
    """The gate of one actor, for one stream of others, on one node."""

    def __init__(self, entrance: Entrance, feed: Feed, open_feed: OpenFeed) -> None:
        """Let what comes from `feed` in by `entrance`, from the queue that `open_feed` opens."""
        self._crew, self._feed, self._open_feed = entrance.crew, feed, open_feed
        self._gate = Gate(entrance, self._open, feed.stream)
        self._after: int | None = None
        """Where to begin, if the stream was waited for."""

    @property
    def is_open(self) -> asyncio.Event:
        """Set once its queue is open, or nothing can come: there is no such stream."""
        return self._gate.is_open

    async def serve(self) -> None:
        """Rule on the events of the stream for as long as the node may, once it is there.

        Raises:
            Unavailable: the actor's queue could not be opened.
            Incompatible: the server refuses us this stream.
        """
        withdrawn = self._crew.permits.wakes.withdrawn
        if await find_position(self._crew, self._feed) is None:
            self.is_open.set()
            await wait_first(self._wait_stream(), withdrawn.wait())
        if not withdrawn.is_set():
            await self._gate.serve()

    async def _wait_stream(self) -> None:
        self._after = await wait_position(self._crew, self._feed)

    async def _open(self) -> Source[DomainEvent | Unreadable]:
        return await self._open_feed(self._crew, self._feed, after=self._after)
