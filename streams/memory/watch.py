"""Watching a bucket in memory: the newest change of every key, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from streams.clock import Clock
from streams.memory.bell import Bell, never_s


class Keyed(Protocol):
    """A change of one key."""

    @property
    def key(self) -> str:
        """The key that changed."""


K = TypeVar("K", bound=Keyed)


class MemoryWatch(Generic[K]):
    """Changes on their way to one watcher. At most one per key waits: the newest."""

    def __init__(
        self,
        standing: Iterable[K],
        *,
        start: str,
        clock: Clock,
        settle: Callable[[], None],
        next_due_s: Callable[[], float],
    ) -> None:
        self._bell = Bell(clock)
        self._changes = {change.key: change for change in standing}
        self._start = start
        self._settle = settle
        self._next_due_s = next_due_s

    def offer(self, change: K) -> None:
        """Put `change` last in line, in place of an older one of its key, if it is watched."""
        if not change.key.startswith(self._start):
            return
        self._changes.pop(change.key, None)
        self._changes[change.key] = change
        self._bell.ring()

    async def receive(self, *, most: int, wait_s: float) -> Sequence[K]:
        """Return up to `most` changes as soon as there are any, or none after `wait_s`."""
        return await self._bell.wait_some(
            lambda: self._take(most), wait_s=wait_s, next_due_s=self._next_due_s
        )

    def _take(self, most: int) -> Sequence[K]:
        self._settle()
        keys = list(self._changes)[:most]
        return [self._changes.pop(key) for key in keys]


class Watchers(Generic[K]):
    """Everyone who watches one bucket now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watches: list[MemoryWatch[K]] = []

    def tell(self, change: K) -> None:
        """Offer `change` to every watcher."""
        for watch in self._watches:
            watch.offer(change)

    @contextmanager
    def watching(
        self,
        standing: Iterable[K],
        *,
        start: str = "",
        settle: Callable[[], None] = lambda: None,
        next_due_s: Callable[[], float] = never_s,
    ) -> Iterator[MemoryWatch[K]]:
        """Watch, while the context lasts, keys that begin with `start`: first those `standing`.

        `settle` makes the changes that are due by now, `next_due_s` says when the next is.
        """
        watch = MemoryWatch(
            standing, start=start, clock=self._clock, settle=settle, next_due_s=next_due_s
        )
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)
