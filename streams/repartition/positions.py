"""Up to where reactors have followed the streams of a stack, once those were moved.

Without a position a reactor follows a stream from its beginning, and would publish again what was
published before the move.
"""

from __future__ import annotations

from collections.abc import Collection

from streams.errors import RevisionConflict
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.keys import published_key
from streams.layout import FOLLOWED
from streams.ports.bucket import Bucket
from streams.subjects import Stack


async def move_positions(link: Link, gates: Bucket, stack: Stack, *, kept: Collection[str]) -> None:
    """Write down that all of `stack` was followed.

    Streams called one of `kept` are not new: what they have for a position stays.
    """
    for stream in FOLLOWED:
        for partition in stack.partitions_of(stream):
            name = stack.stream(stream, partition)
            head = str(await stored.newest_seq(link, name)).encode()
            key, after = published_key(stack.part(stream, partition)), 0 if name in kept else None
            try:
                await gates.put(key, head, after=after)
            except RevisionConflict:
                continue
