"""Deltas on core NATS: published to whoever listens at that moment, and stored nowhere."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from streams.errors import StreamError, Unavailable
from streams.jetstream.connection.link import Link, wait_set
from streams.jetstream.connection.nats_inbox import ReplyInbox
from streams.jetstream.connection.protocol import Received
from streams.jetstream.connection.session import Session
from streams.model.deltas import Delta
from streams.ports.deltas import WAITING_MAX
from streams.subjects import Stack
from streams.wire.deltas import decode_delta, encode_delta


class CoreDeltaListener:
    """`DeltaListener` on one subject, on one session after the other."""

    def __init__(self, link: Link, subject: str) -> None:
        self._link, self._subject = link, subject
        self._session: Session | None = None
        self._inbox: ReplyInbox | None = None
        self._waiting: deque[Delta] = deque(maxlen=WAITING_MAX)  # guard: slow-listener-drops-oldest
        self._news = asyncio.Event()

    async def subscribe(self) -> None:
        """Listen on the session that is open now, unless that is done; raises as `listen` does."""
        session = self._link.session
        if session is not self._session:  # guard: listener-follows-session
            self._inbox = await session.subscribe(self._subject, self._hear)
            self._session = session

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Delta]:
        """See `DeltaListener.receive`."""
        with suppress(Unavailable):  # The next call tries again.
            await self.subscribe()
        await wait_set(self._news, timeout_s=wait_s)
        found = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if not self._waiting:
            self._news.clear()
        return found

    def close(self) -> None:
        """Listen no more."""
        if self._inbox is not None:
            self._inbox.close()

    def _hear(self, message: Received) -> None:
        delta = decode_delta(message.data)
        if delta is not None:  # guard: newer-delta-passed-over
            self._waiting.append(delta)
            self._news.set()


class CoreDeltas:
    """`Deltas` of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link, self._stack = link, stack

    def publish(self, episode_id: str, delta: Delta) -> None:
        """See `Deltas.publish`."""
        # Not connected, the server does not read, or this user may not: nothing waits for it.
        with suppress(StreamError):  # guard: unpublished-delta-dropped
            self._link.session.post(self._stack.deltas(episode_id), encode_delta(delta))

    @asynccontextmanager
    async def listen(self, episode_id: str) -> AsyncIterator[CoreDeltaListener]:
        """See `Deltas.listen`."""
        listener = CoreDeltaListener(self._link, self._stack.deltas(episode_id))
        await listener.subscribe()
        try:
            yield listener
        finally:
            listener.close()
