"""The queue of an actor's events, whose filter the nodes of all its versions share.

The server takes whole lists of filters, under no condition: of two nodes that read the list, each
add a name and write it, one would remove the name of the other. A bucket has conditional puts. So
an entry there has the list, and a node changes the queue only after it has put the new list, at the
revision that it read:

    read ─▶ put, not applied ─▶ write it to the queue ─▶ put, applied

Whoever finds a list that is not applied waits for its writer, so one node at a time writes to the
queue, and what a node has opened stays open. A writer that died is waited for `APPLY_S_MAX`. One
that was only slow finds another revision at its last put, and begins again: its list may have
replaced a newer one. As the entry has all names, it then adds those that it took away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from streams.errors import RevisionConflict
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.consumer import DurableConsumer, cannot
from streams.json import JsonObject
from streams.ports.bucket import Bucket

Filters: TypeAlias = frozenset[str]

APPLY_S_MAX: Final = 10.0
"""How long a node that changes a queue is waited for before it counts as dead, in seconds: longer
than a request takes with all its repeats, 6.6 s."""

LOOK_S: Final = 0.05
"""Between two looks at what another node is changing, in seconds."""


class AgreedFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters that a queue is to have."""

    filters: tuple[str, ...] = ()
    is_applied: bool = True
    """False: the node that put this has yet to write it to the queue."""


@dataclass(frozen=True)
class FilterRevision:
    """A list of filters, and the revision at which the next one is put."""

    agreed: AgreedFilters
    revision: int


@dataclass(frozen=True, kw_only=True)
class SharedQueue(DurableConsumer):
    """A consumer whose filter several nodes change, one at a time."""

    bucket: Bucket
    key: str
    """Of the entry with its filters."""

    async def narrow(self, link: Link, *, without: Collection[str]) -> None:
        """Take filters from it, if it is there. Without any it would be for everything: it goes.

        Raises:
            Incompatible: the server will not have it.
        """
        try:
            if await self.filters_there(link):
                await self._change(link, lambda there: there.difference(without))
        except api.RequestRefused as error:
            raise cannot(self.name, error) from error

    async def _add_filters(self, link: Link, resume_seq: int) -> JsonObject:
        """Add our filters to those that all nodes agreed on."""
        # guard: shared-queue-only-widens
        return await self._change(link, frozenset(self.filters).union, resume_seq=resume_seq)

    async def _change(
        self, link: Link, change: Callable[[Filters], Filters], *, resume_seq: int = 0
    ) -> JsonObject:
        """Give it the filters that `change` makes of those it has; return the server's state."""
        while True:
            base = await self._newest(link)
            there = await self.filters_there(link)
            wanted = change(there.union(base.agreed.filters))  # guard: queue-includes-agreed
            with suppress(RevisionConflict):  # Another node was first, or we counted as dead.
                revision = await self._put(wanted, after=base.revision, is_applied=False)
                info = await self._apply(link, wanted, base, revision, resume_seq)
                # guard: late-change-undone
                await self._put(wanted, after=revision, is_applied=True)
                return info

    async def _apply(
        self, link: Link, wanted: Filters, base: FilterRevision, revision: int, resume_seq: int
    ) -> JsonObject:
        """Write `wanted` to the queue; what the server refuses nobody need wait for."""
        try:
            return await self._write(link, wanted, resume_seq)
        except api.RequestRefused:
            # guard: refused-change-not-awaited
            await self._put(base.agreed.filters, after=revision, is_applied=True)
            raise

    async def _newest(self, link: Link) -> FilterRevision:
        """Return the newest list, once it is applied or its writer counts as dead."""
        begun_s, awaited = link.clock.monotonic_s(), 0
        while True:
            entry = await self.bucket.get(self.key)
            if entry is None or entry.value is None:
                return FilterRevision(AgreedFilters(), 0)
            agreed = _decoder.decode(entry.value)
            now_s = link.clock.monotonic_s()
            if entry.revision != awaited:
                begun_s, awaited = now_s, entry.revision
            if agreed.is_applied or now_s - begun_s >= APPLY_S_MAX:  # guard: changing-node-awaited
                return FilterRevision(agreed, entry.revision)
            await link.clock.sleep(LOOK_S)

    async def _put(self, filters: Collection[str], *, after: int, is_applied: bool) -> int:
        agreed = AgreedFilters(filters=tuple(sorted(filters)), is_applied=is_applied)
        return await self.bucket.put(self.key, _encoder.encode(agreed), after=after)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AgreedFilters)
