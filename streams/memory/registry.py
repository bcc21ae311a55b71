"""The registry in a dict."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from streams.clock import Clock
from streams.errors import RegistryConflict
from streams.memory.watch import MemoryWatch, Watchers
from streams.registry import Entry


class MemoryRegistry:
    """See `streams.registry.Registry`."""

    def __init__(self, clock: Clock) -> None:
        self._revision = 0
        self._entries: dict[str, Entry] = {}
        self._watchers: Watchers[Entry] = Watchers(clock)

    async def put(self, key: str, value: bytes, *, after: int | None = None) -> int:
        """See `Registry.put`."""
        if after is not None and after != self._revision_of(key):
            raise RegistryConflict(key, expected=after)
        # Last in the dict, so that `watch` finds the entries in the order of their revisions.
        self._entries.pop(key, None)
        self._entries[key] = self._change(key, value)
        return self._revision

    async def get(self, key: str) -> Entry | None:
        """See `Registry.get`."""
        return self._entries.get(key)

    async def delete(self, key: str) -> None:
        """See `Registry.delete`."""
        if self._entries.pop(key, None) is not None:
            self._change(key, None)

    async def entries(self) -> Mapping[str, Entry]:
        """See `Registry.entries`."""
        return dict(self._entries)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[MemoryWatch[Entry]]:
        """See `Registry.watch`."""
        with self._watchers.watching(self._entries.values()) as watch:
            yield watch

    def _revision_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return 0 if entry is None else entry.revision

    def _change(self, key: str, value: bytes | None) -> Entry:
        self._revision += 1
        entry = Entry(key=key, value=value, revision=self._revision)
        self._watchers.tell(entry)
        return entry
