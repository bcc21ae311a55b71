"""Publishes domain events in order, as long as a fence stands.

Every message expects the fence to be its subject's last message, so the server refuses whoever was
overtaken, also what was on its way. Measured (2.15): with one replica, few messages are fastest
side by side, and many as atomic batches; with more, messages under one guard that are on their way
at a time are refused, unless they are one batch. One connection carries all, so of messages whose
answers are lost the first ones are stored, and sending all again keeps the order. Only a server
that refuses one of several messages side by side and takes a later one could change their order; no
such case is known with one replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from streams.errors import Unavailable, UnknownOutcome, VersionConflict
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.messages.grouping import BODY_BYTES_MAX
from streams.jetstream.messages.publish import (
    BatchRefused,
    Patience,
    Publisher,
    Write,
    WrongSequence,
)
from streams.ports.domain_events import Publication
from streams.subjects import Stack
from streams.wire.messages import event_headers


class JetStreamFencedWriter:
    """See `streams.ports.domain_events.FencedWriter`."""

    def __init__(self, link: Link, stack: Stack, subject: str, seq: int, *, is_one: bool) -> None:
        """Publish while the newest message on `subject` is at `seq`.

        `is_one`: the stream has one replica.
        """
        self._link, self._stack, self._subject, self._seq = link, stack, subject, seq
        self._guard = {headers.EXPECTED_SEQ: str(seq), headers.EXPECTED_SUBJECT: subject}
        self._publisher = Publisher(link)
        settings = link.settings.group
        # guard: replicas-one-fenced-message
        self._alone_max = max(1, settings.least - 1) if is_one and settings.least else 1
        self._most = settings.most
        if settings.is_fixed:
            self._alone_max = settings.least - 1

    async def publish(self, events: Sequence[Publication]) -> None:
        """See `FencedWriter.publish`."""
        writes = [self._write(event) for event in events]
        if len(writes) <= self._alone_max:
            return await self._store_alone(writes)
        for batch in self._batches(writes):
            await self._store_together(batch)
        return None

    def _write(self, event: Publication) -> Write:
        more = event_headers(id=event.id, hops=event.hops, trace=event.trace, follows=event.follows)
        subject = self._stack.event(event.name)
        # guard: fenced-event-names-fence
        return Write(subject, event.data, {**more, **self._guard}, key=event.id)

    def _batches(self, writes: Sequence[Write]) -> Iterator[list[Write]]:
        """Yield `writes` in parts that a batch may have: each id once, and not too large."""
        batch: dict[str, Write] = {}
        size = 0
        for write in writes:
            size += len(write.data)
            if batch and (len(batch) >= self._most or size > BODY_BYTES_MAX or write.key in batch):
                yield list(batch.values())
                batch, size = {}, len(write.data)
            batch[write.key] = write
        if batch:
            yield list(batch.values())

    async def _store_together(self, writes: Sequence[Write]) -> None:
        patience = Patience(self._link, self._subject)
        while not patience.has_failed:
            try:
                await self._publisher.store_all(writes)
            except BatchRefused:
                break
            except Unavailable as error:
                await patience.after(error)
            else:
                return
        # One of them is stored already, or cannot be: alone, each has an outcome of its own.
        for write in writes:
            await self._store_alone([write])

    async def _store_alone(self, writes: Sequence[Write]) -> None:
        """Store `writes` side by side; whatever fails goes again, with all behind it."""
        patience = Patience(self._link, self._subject)
        left = list(writes)
        while left:
            stored = (self._publisher.store(write) for write in left)
            outcomes = await asyncio.gather(*stored, return_exceptions=True)
            failures = [
                (place, each)
                for place, each in enumerate(outcomes)
                if isinstance(each, BaseException)
            ]
            if not failures:
                return
            place, error = failures[0]
            left = left[place:]  # guard: refused-fence-goes-again
            await self._after(error, patience)

    async def _after(self, error: BaseException, patience: Patience) -> None:
        """Wait before the next attempt, or raise what is final."""
        match error:
            case WrongSequence(in_flight=True):
                await patience.after(UnknownOutcome(self._subject, detail="one is in flight"))
            case WrongSequence():
                raise VersionConflict(self._subject, expected=self._seq) from error
            case Unavailable():
                await patience.after(error)
            case _:
                raise error
