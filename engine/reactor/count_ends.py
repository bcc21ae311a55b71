"""Counts the ends of episodes among the latest ones of their expectations: read → count → store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from engine.episodes.latest_ends import (
    CountEnd,
    LatestEnds,
    count,
    ends_in,
    level_changed,
    without_published,
)
from engine.runtime.publish import PublicEvent
from streams.errors import UnreadableEvent
from streams.key_changes import Change, change_key
from streams.keys import ends_key
from streams.ports.bucket import Bucket, BucketEntry

TRIES_MAX: Final = 64
"""Most tries to write a key that the reactors of other streams write, too: one for each of at most
64 partitions."""

Traced = tuple[CountEnd, str]
"""An end, and the trace of its commit."""


async def count_ends(
    gates: Bucket, ends: Sequence[Traced], *, part: str, published: int
) -> list[tuple[PublicEvent, str]]:
    """Count `ends` of the stream `part`, and return the public events of what they change.

    Those of an end that was counted before are returned again, unless it is at most `published`,
    the commit up to which everything is published for certain.

    Raises:
        UnreadableEvent: a newer version has written what was counted. It stays as it is.
    """
    keyed: dict[str, list[Traced]] = {}
    for end, trace in ends:
        key = ends_key(end.opened.actor_id, end.opened.expectation_id)
        keyed.setdefault(key, []).append((end, trace))
    counting = [
        _changes(gates, key, those, part=part, published=published) for key, those in keyed.items()
    ]
    # guard: level-counted-concurrently
    return [change for changes in await asyncio.gather(*counting) for change in changes]


async def _changes(
    gates: Bucket, key: str, ends: Sequence[Traced], *, part: str, published: int
) -> list[tuple[PublicEvent, str]]:
    after = await _count(gates, key, ends, part=part, published=published)
    events = ((level_changed(after, end, part=part), trace) for end, trace in ends)
    return [(event, trace) for event, trace in events if event is not None]


async def _count(
    gates: Bucket, key: str, ends: Sequence[Traced], *, part: str, published: int
) -> LatestEnds:
    async def decide(entry: BucketEntry | None) -> Change[LatestEnds]:
        value, revision = (entry.value, entry.revision) if entry is not None else (None, 0)
        try:
            before = ends_in(value)
        except msgspec.ValidationError as error:
            raise UnreadableEvent(key, seq=revision, detail=str(error)) from error
        after = without_published(before, part=part, published=published)
        for end, _trace in ends:
            after = count(after, end, part=part)
        return after, value if after == before else msgspec.json.encode(after)

    return await change_key(gates, key, decide, tries_max=TRIES_MAX)
