"""The registry on JetStream: keys with values in one bucket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from streams.errors import RegistryConflict, Unavailable
from streams.jetstream import headers, stored
from streams.jetstream.arrival import Arrival
from streams.jetstream.follow import OrderedReader
from streams.jetstream.keys import PURGE, Bucket, KeyMessage, is_gone
from streams.jetstream.link import Link
from streams.jetstream.publish import Patience, WrongSequence
from streams.jetstream.shapes import MARKER_S
from streams.registry import Entry, RegistryWatch
from streams.subjects import Stack

TOMBSTONE: Final = {**PURGE, headers.TTL: f"{MARKER_S}s"}
"""A deletion, visible for as long as a node may be away and still hear of it."""


class JetStreamRegistry:
    """`Registry` in the registry bucket of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        """Read and write through `link`."""
        self._link = link
        self._bucket = Bucket(link, stack.registry_bucket())

    async def put(self, key: str, value: bytes, *, after: int | None = None) -> int:
        """Set `key`. See `Registry.put`."""
        nonce = self._link.unique()
        patience = Patience(self._link, key)
        expected = after
        while True:
            try:
                return await self._bucket.write(
                    key, value, more={headers.NONCE: nonce}, expected=expected
                )
            except Unavailable as error:
                await patience.after(error)
            except WrongSequence as error:
                found = await self._bucket.last(key)
                if found is not None and found.headers.get(headers.NONCE) == nonce:
                    return found.seq
                if after != 0 or not is_gone(found) or found is None:
                    raise RegistryConflict(key, expected=after or 0) from error
                expected = found.seq

    async def get(self, key: str) -> Entry | None:
        """Return the key's entry. See `Registry.get`."""
        found = await self._bucket.last(key)
        return None if found is None or is_gone(found) else self._entry(found)

    async def delete(self, key: str) -> None:
        """Remove `key`. See `Registry.delete`."""
        patience = Patience(self._link, key)
        while await self.get(key) is not None:
            try:
                await self._bucket.write(key, b"", more=TOMBSTONE, expected=None)
            except Unavailable as error:
                await patience.after(error)

    async def entries(self) -> Mapping[str, Entry]:
        """Return every entry. See `Registry.entries`."""
        entries = [self._entry(found) async for found in self._bucket.every() if not is_gone(found)]
        return {entry.key: entry for entry in entries}

    def watch(self) -> AbstractAsyncContextManager[RegistryWatch]:
        """Return a watch. See `Registry.watch`."""
        return self._watch()

    @asynccontextmanager
    async def _watch(self) -> AsyncIterator[JetStreamRegistryWatch]:
        async with self._bucket.reader(after=0) as reader:
            standing_seq = await stored.newest_seq(self._link, self._bucket.stream)
            yield JetStreamRegistryWatch(reader, self._bucket, standing_seq=standing_seq)

    def _entry(self, message: KeyMessage) -> Entry:
        return entry_of(self._bucket, message)


class JetStreamRegistryWatch:
    """`RegistryWatch` on one bucket."""

    def __init__(self, reader: OrderedReader, bucket: Bucket, *, standing_seq: int) -> None:
        """Read `bucket` with `reader`; what is gone up to `standing_seq` never stood."""
        self._reader = reader
        self._bucket = bucket
        self._standing_seq = standing_seq

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Entry]:
        """Return the next changes. See `RegistryWatch.receive`."""
        entries = await self._reader.receive(self._read, most=most, wait_s=wait_s)
        return [e for e in entries if e.value is not None or e.revision > self._standing_seq]

    def _read(self, arrived: Arrival) -> Entry:
        return entry_of(self._bucket, arrived)


def entry_of(bucket: Bucket, message: KeyMessage) -> Entry:
    """Return the entry that `message` says."""
    value = None if is_gone(message) else message.data
    return Entry(key=bucket.key_of(message), value=value, revision=message.seq)
