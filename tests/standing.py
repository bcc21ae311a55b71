"""What a log holds now: all of it, however slowly it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streams.layout import Stream
from streams.ports.log import EventLog, Recorded

AT_A_TIME: Final = 1_000
LOOK_S: Final = 1.0
"""Longest silence before the position is looked at again, in seconds."""


async def standing(log: EventLog, stream: Stream = Stream.JOURNAL) -> Sequence[Recorded]:
    """Return every commit that a stream of one partition holds when this is called.

    What a follower returns in one go is what has arrived, which is not all there is.
    """
    found: list[Recorded] = []
    head = await log.head(stream)
    async with log.follow(stream) as follower:
        while (found[-1].seq if found else 0) < head:
            found += await follower.receive(most=AT_A_TIME, wait_s=LOOK_S)
    return found
