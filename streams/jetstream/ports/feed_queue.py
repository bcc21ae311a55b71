"""The queue of one actor on a stream of others, which may be deleted and made anew at any time.

The consumer goes with its stream. Whether a stream was made anew is told by the time at which it
was made: the gates have that of the stream that the actor read last (`ReadStream`), so nodes that
start later know it, too. All that the new stream has is new to the actor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from streams.errors import NoSuchStream
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.ports.consumer import DurableConsumer
from streams.ports.bucket import Bucket


class ReadStream(msgspec.Struct, frozen=True, kw_only=True):
    """Which streams of one name an actor has read."""

    first: str
    """When the first of them was made, as the server writes it."""
    newest: str
    """When the newest of them was made."""


@dataclass(frozen=True, kw_only=True)
class FeedQueue(DurableConsumer):
    """A consumer of the stream of that name which was made at `created`, and of no other."""

    created: str = ""
    is_of_others: ClassVar[bool] = True

    async def ensure(self, link: Link, *, resume_seq: int = 0) -> int:
        """See `DurableConsumer.ensure`; raise `NoSuchStream` once the stream is another one."""
        await self._require_stream(link)
        is_there = await self.filters_there(link)
        acknowledged_seq = await super().ensure(link, resume_seq=resume_seq)
        if not is_there:
            try:
                await self._require_stream(link)
            except NoSuchStream:
                # It was made for the stream before, and begins where that one ended.
                await self.delete(link)  # guard: former-streams-queue-dropped
                raise
        return acknowledged_seq

    async def _require_stream(self, link: Link) -> None:
        # guard: remade-stream-reader-told
        if (await stored.extent(link, self.stream)).created != self.created:
            raise NoSuchStream(self.stream)


async def read_stream(bucket: Bucket, key: str) -> ReadStream | None:
    """Return which streams were read, if any was."""
    entry = await bucket.get(key)
    return None if entry is None or entry.value is None else _decoder.decode(entry.value)


async def put_read_stream(bucket: Bucket, key: str, read: ReadStream) -> None:
    """Remember which streams were read."""
    await bucket.put(key, _encoder.encode(read))


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReadStream)
