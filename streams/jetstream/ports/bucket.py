"""A bucket on JetStream: keys with values, which the server forgets in time.

    put      write, expecting the revision that the caller read; or any
             expecting none: no key, or the tombstone, if that is all there is
    delete   write a purge that stays for as long as a marker does, expecting what a put may
    lapse    the server replaces the key by a marker when its time to live is over

Each put has a nonce, by which a repeated one finds itself after its answer was lost.

A single server that is killed reads its messages again when it starts, and then shows the last one
of a key that is still on its disk: a value whose tombstone has gone by itself stands again (2.15.1
and earlier, docs/adr/0053-no-compression.md). So a tombstone lives at least as long as the value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from streams.errors import RevisionConflict, Unavailable, UnknownOutcome
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.messages.publish import Patience, WrongSequence
from streams.jetstream.messages.stored import Stored
from streams.jetstream.ports.follow import OrderedReader, Tails
from streams.jetstream.ports.keys import PURGE, KeyMessage, Keys, is_gone
from streams.ports.bucket import BucketEntry, BucketWatch, require_ttl

SECONDS: Final = "s"
"""The unit of every time to live that is written here."""

GETS_IN_FLIGHT_MAX: Final = 32
"""Keys asked for at a time, when each is asked for by itself."""


class JetStreamBucket:
    """`Bucket` on the bucket `name`, where a tombstone lives for `marker_s`; None: for ever."""

    def __init__(self, link: Link, name: str, *, marker_s: int | None) -> None:
        self._link = link
        self._keys = Keys(link, name)
        self._tails: Tails[BucketEntry] = Tails()
        self._marker_s = marker_s

    async def put(
        self, key: str, value: bytes, *, after: int | None = None, ttl_s: int | None = None
    ) -> int:
        """See `Bucket.put`."""
        require_ttl(ttl_s)
        nonce, patience, expected = self._link.unique(), Patience(self._link, key), after
        more = {headers.NONCE: nonce, **_life(ttl_s)}
        while True:
            try:
                return await self._keys.write(key, value, more=more, expected=expected)
            except Unavailable as error:
                await patience.after(error)
            except WrongSequence as error:
                found = await self._last(key, patience)
                # guard: own-put-recognised
                if found is not None and found.headers.get(headers.NONCE) == nonce:
                    return found.seq
                if error.in_flight and patience.unsure:
                    await patience.after(UnknownOutcome(key, detail="another is in flight"))
                elif after == 0 and is_gone(found):  # guard: lapsed-key-is-new
                    if expected or found is None:
                        await patience.after(Unavailable(key, detail="it comes and goes"))
                    expected = 0 if found is None else found.seq
                else:
                    raise RevisionConflict(key, expected=after or 0) from error

    async def get(self, key: str) -> BucketEntry | None:
        """See `Bucket.get`."""
        found = await self._keys.last(key)
        return None if found is None or is_gone(found) else entry_of(self._keys, found)

    async def delete(self, key: str, *, after: int | None = None) -> None:
        """See `Bucket.delete`."""
        patience = Patience(self._link, key)
        while (found := await self._keys.last(key)) is not None and not is_gone(found):
            if after is not None and found.seq != after:
                raise RevisionConflict(key, expected=after)
            tombstone = {**PURGE, **_life(self._marker_s_of(found))}
            try:
                await self._keys.write(key, b"", more=tombstone, expected=after)
            except Unavailable as error:
                await patience.after(error)
            except WrongSequence as error:  # What stands there the next time tells.
                await patience.after(UnknownOutcome(key, detail=str(error)))
            else:
                return

    async def entries(
        self, *, under: str = "", from_leader: bool = False
    ) -> Mapping[str, BucketEntry]:
        """See `Bucket.entries`."""
        if from_leader:
            return await self._entries_of_leader(under)
        found = self._keys.every(under=under)
        entries = [entry_of(self._keys, each) async for each in found if not is_gone(each)]
        return {entry.key: entry for entry in entries}

    @asynccontextmanager
    async def watch(self, *, under: str = "") -> AsyncIterator[BucketWatch]:
        """See `Bucket.watch`."""
        read = partial(entry_of, self._keys)
        async with self._keys.reader(read, after=0, tails=self._tails, under=under) as reader:
            standing_seq = await stored.newest_seq(self._link, self._keys.stream)
            yield JetStreamBucketWatch(reader, standing_seq)

    def _marker_s_of(self, value: Stored) -> int | None:
        """Return how long the tombstone of `value` lives; None: for ever."""
        life = value.headers.get(headers.TTL)
        if life is None:
            return self._marker_s
        # guard: tombstone-outlives-value
        return max(self._marker_s or 0, int(life.removesuffix(SECONDS)))

    async def _entries_of_leader(self, under: str) -> Mapping[str, BucketEntry]:
        names = sorted(await self._keys.names(under=under))
        found: list[BucketEntry | None] = []
        for at in range(0, len(names), GETS_IN_FLIGHT_MAX):
            batch = names[at : at + GETS_IN_FLIGHT_MAX]
            found += await asyncio.gather(*(self.get(key) for key in batch))
        return {entry.key: entry for entry in found if entry is not None}

    async def _last(self, key: str, patience: Patience) -> KeyMessage | None:
        while True:
            try:
                return await self._keys.last(key)
            except Unavailable as error:
                await patience.after(error)


class JetStreamBucketWatch:
    """`BucketWatch` on one bucket; what was gone by `standing_seq` never stood."""

    def __init__(self, reader: OrderedReader[BucketEntry], standing_seq: int) -> None:
        self._reader = reader
        self._standing_seq = standing_seq

    async def receive(self, *, most: int, wait_s: float) -> Sequence[BucketEntry]:
        """See `BucketWatch.receive`."""
        entries = await self._reader.receive(most=most, wait_s=wait_s)
        # guard: watch-shows-no-past-deletes
        return [e for e in entries if e.value is not None or e.revision > self._standing_seq]


def entry_of(keys: Keys, message: KeyMessage) -> BucketEntry:
    """Return `message` as an entry."""
    value = None if is_gone(message) else message.data
    return BucketEntry(key=keys.key_of(message), value=value, revision=message.seq)


def _life(ttl_s: int | None) -> Headers:
    return {} if ttl_s is None else {headers.TTL: f"{ttl_s}{SECONDS}"}
