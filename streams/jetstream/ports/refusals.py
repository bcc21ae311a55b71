"""Refusals on JetStream: a stream that drops what is old, and more than so many of each subject."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from streams.errors import Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.messages.publish import BatchRefused, Publisher, Write
from streams.layout import Stream
from streams.model.refusals import Refusal
from streams.ports.refusals import PAGE_MAX, RecordedRefusal
from streams.subjects import Stack
from streams.wire.refusals import decode_refusal, encode_refusal

BATCH_MAX: Final = 200
"""Refusals in one atomic batch. One has at most some kilobytes, so this many are far below the
1,000 messages that the server takes, and hold up no other writer."""


class JetStreamRefusals:
    """`Refusals` on the refusals stream of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link, self._stack = link, stack
        self._stream = stack.stream(Stream.REFUSALS)
        self._publisher = Publisher(link)

    async def store(self, refusals: Sequence[Refusal]) -> None:
        """See `Refusals.store`."""
        for begin in range(0, len(refusals), BATCH_MAX):
            batch = [self._write(each) for each in refusals[begin : begin + BATCH_MAX]]
            try:
                await self._publisher.store_all(batch)
            except BatchRefused as error:
                raise Unavailable(self._stream, detail=str(error)) from error

    async def newest(self, actor: str, expectation: str) -> Sequence[Refusal]:
        """See `Refusals.newest`."""
        subject = self._stack.refusal(actor, expectation)
        found = await self._page(subject, seq=0)
        return [each.refusal for each in reversed(found)]

    async def newest_seq(self) -> int:
        """See `Refusals.newest_seq`."""
        return await stored.newest_seq(self._link, self._stream)

    async def after(self, seq: int, *, actor: str = "") -> Sequence[RecordedRefusal]:
        """See `Refusals.after`."""
        return await self._page(self._stack.refusals_of(actor), seq=seq)

    async def _page(self, subject: str, *, seq: int) -> list[RecordedRefusal]:
        found: list[RecordedRefusal] = []
        messages = stored.every_after(self._link, self._stream, subject, seq=seq)
        async with aclosing(messages):
            async for message in messages:
                refusal = decode_refusal(message.data)
                if refusal is not None:  # guard: newer-refusal-passed-over
                    found.append(RecordedRefusal(message.seq, refusal))
                if len(found) >= PAGE_MAX:
                    break
        return found

    def _write(self, refusal: Refusal) -> Write:
        subject = self._stack.refusal(refusal.actor, refusal.expectation)
        return Write(subject, encode_refusal(refusal), {}, key=subject)
