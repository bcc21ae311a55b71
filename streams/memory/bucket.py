"""A bucket in a dict. The stack's one clock plays the server's timer."""

from __future__ import annotations

import heapq
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

from streams.clock import Clock
from streams.errors import RevisionConflict
from streams.memory.watch import MemoryWatch, Watchers
from streams.ports.bucket import BucketEntry, require_ttl
from streams.ports.subject_keys import KEY_BYTES, SubjectKey


class MemoryBucket:
    """See `streams.ports.bucket.Bucket`. What the clock has ended is settled before every look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._revision = 0
        self._entries: dict[str, BucketEntry] = {}
        self._ends: list[tuple[float, int, str]] = []
        """When each lapses, its revision and its key; also of those that were put again."""
        self._watchers: Watchers[BucketEntry] = Watchers(clock)

    async def put(
        self, key: str, value: bytes, *, after: int | None = None, ttl_s: int | None = None
    ) -> int:
        """See `Bucket.put`."""
        require_ttl(ttl_s)
        self._settle()
        # guard: memory-put-at-read-revision
        if after is not None and after != self._revision_of(key):
            raise RevisionConflict(key, expected=after)
        # Last in the dict, so that `watch` finds the entries in the order of their revisions.
        self._entries.pop(key, None)
        if ttl_s is not None:
            ends_s = self._clock.monotonic_s() + ttl_s
            heapq.heappush(self._ends, (ends_s, self._revision + 1, key))
        self._entries[key] = self._change(key, value)
        return self._revision

    async def get(self, key: str) -> BucketEntry | None:
        """See `Bucket.get`."""
        self._settle()
        return self._entries.get(key)

    async def delete(self, key: str, *, after: int | None = None) -> None:
        """See `Bucket.delete`."""
        self._settle()
        # guard: old-delete-removes-nothing
        if after is not None and key in self._entries and after != self._revision_of(key):
            raise RevisionConflict(key, expected=after)
        self._remove(key)

    async def entries(
        self,
        *,
        under: str = "",
        from_leader: bool = False,  # noqa: ARG002 - there are no others
    ) -> Mapping[str, BucketEntry]:
        """See `Bucket.entries`."""
        self._settle()
        start = f"{under}." if under else ""
        return {key: entry for key, entry in self._entries.items() if key.startswith(start)}

    @asynccontextmanager
    async def watch(self, *, under: str = "") -> AsyncIterator[MemoryWatch[BucketEntry]]:
        """See `Bucket.watch`."""
        standing = (await self.entries(under=under)).values()
        start = f"{under}." if under else ""
        with self._watchers.watching(
            standing, start=start, settle=self._settle, next_due_s=self._next_end_s
        ) as watch:
            yield watch

    def age(self, seconds: float, *, but: Collection[str]) -> None:
        """Let every key lapse so much sooner, except for those that begin with one of `but`."""
        kept = tuple(but)
        self._ends = [
            (ends_s if key.startswith(kept) else ends_s - seconds, revision, key)
            for ends_s, revision, key in self._ends
        ]
        heapq.heapify(self._ends)
        self._settle()

    def _settle(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._next_end_s() <= now_s:
            _, _, key = heapq.heappop(self._ends)
            self._remove(key)

    def _next_end_s(self) -> float:
        """Return when the next key lapses, forgetting what was put again or removed since."""
        while self._ends:
            ends_s, revision, key = self._ends[0]
            if self._revision_of(key) == revision:  # guard: put-gives-new-life
                return ends_s
            heapq.heappop(self._ends)
        return math.inf

    def _revision_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return 0 if entry is None else entry.revision

    def _remove(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._change(key, None)

    def _change(self, key: str, value: bytes | None) -> BucketEntry:
        self._revision += 1
        entry = BucketEntry(key=key, value=value, revision=self._revision)
        self._watchers.tell(entry)
        return entry


class MemorySubjectKeys:
    """See `streams.ports.subject_keys.SubjectKeys`. Its keys are no secret: nothing is random."""

    def __init__(self) -> None:
        self._keys: dict[str, SubjectKey] = {}
        self._numbers = count(1)

    async def get(self, name: str) -> SubjectKey | None:
        """See `SubjectKeys.get`."""
        return self._keys.get(name)

    async def make(self, name: str) -> SubjectKey:
        """See `SubjectKeys.make`."""
        if name not in self._keys:
            number = next(self._numbers)
            secret = number.to_bytes(KEY_BYTES, "big")
            self._keys[name] = SubjectKey(id=f"key{number}", secret=secret)
        return self._keys[name]

    async def destroy(self, name: str) -> SubjectKey | None:
        """See `SubjectKeys.destroy`."""
        return self._keys.pop(name, None)

    async def names(self) -> Sequence[str]:
        """See `SubjectKeys.names`."""
        return sorted(self._keys)
