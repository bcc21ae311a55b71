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
from streams.errors import RevisionConflict, Unavailable, UnreadableEvent
from streams.keys import ends_key
from streams.ports.bucket import Bucket

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
    for _ in range(TRIES_MAX):
        entry = await gates.get(key)
        value, revision = (entry.value, entry.revision) if entry is not None else (None, 0)
        try:
            before = ends_in(value)
        except msgspec.ValidationError as error:
            raise UnreadableEvent(key, seq=revision, detail=str(error)) from error
        after = without_published(before, part=part, published=published)
        for end, _trace in ends:
            after = count(after, end, part=part)
        if after == before:
            return after
        try:
            # guard: level-reactors-keep-each-other
            await gates.put(key, msgspec.json.encode(after), after=revision)
        except RevisionConflict:
            continue
        return after
    raise Unavailable(key, detail=f"it changed {TRIES_MAX} times meanwhile")
