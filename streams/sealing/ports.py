"""`sealed_ports`: all ports of a stack that encrypts what it has of its subjects of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

import msgspec

from streams.clock import Clock
from streams.keys import CACHED
from streams.model.refusals import Refusal
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry, BucketWatch
from streams.ports.refusals import RecordedRefusal, Refusals
from streams.ports.subject_keys import SubjectKeys
from streams.sealing.box import check_library
from streams.sealing.log import SealedLog
from streams.sealing.objects import SealedObjects
from streams.sealing.queues import SealedCommands, SealedEvents, SealedTimers
from streams.sealing.seals import Seals

UNCACHED_REVISION: Final = 0
"""What a put returns that stores nothing."""


def sealed_ports(ports: Ports, keys: SubjectKeys, kinds: Sequence[str], clock: Clock) -> Ports:
    """Return `ports` with whatever may hold contents behind encryption.

    Raises:
        Incompatible: the library for it is missing.
    """
    check_library()
    stack = ports.stack
    seals = Seals(ports.log, keys, stack=stack, kinds=kinds, clock=clock)
    return replace(
        ports,
        encrypts=True,
        log=SealedLog(ports.log, seals, stack),
        commands=SealedCommands(ports.commands, seals),
        domain_events=SealedEvents(ports.domain_events, seals),
        timers=SealedTimers(ports.timers, seals),
        objects=SealedObjects(ports.objects, seals, stack),
        gates=GatesWithoutCache(ports.gates),
        refusals=RefusalsWithoutValues(ports.refusals),
    )


class GatesWithoutCache:
    """`Bucket` that keeps no results of tools: nobody knows whose they would be."""

    def __init__(self, gates: Bucket) -> None:
        self._gates = gates

    async def put(
        self, key: str, value: bytes, *, after: int | None = None, ttl_s: int | None = None
    ) -> int:
        """See `Bucket.put`."""
        if key.startswith(f"{CACHED}."):  # guard: cache-keeps-no-contents
            return UNCACHED_REVISION
        return await self._gates.put(key, value, after=after, ttl_s=ttl_s)

    async def get(self, key: str) -> BucketEntry | None:
        """See `Bucket.get`."""
        return await self._gates.get(key)

    async def delete(self, key: str, *, after: int | None = None) -> None:
        """See `Bucket.delete`."""
        await self._gates.delete(key, after=after)

    async def entries(
        self, *, under: str = "", from_leader: bool = False
    ) -> Mapping[str, BucketEntry]:
        """See `Bucket.entries`."""
        return await self._gates.entries(under=under, from_leader=from_leader)

    def watch(self, *, under: str = "") -> AbstractAsyncContextManager[BucketWatch]:
        """See `Bucket.watch`."""
        return self._gates.watch(under=under)


class RefusalsWithoutValues:
    """`Refusals` that keep no values of events: reasons, names and subjects alone."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    async def store(self, refusals: Sequence[Refusal]) -> None:
        """See `Refusals.store`."""
        # guard: refusals-keep-no-values
        plain = [msgspec.structs.replace(each, against=None) for each in refusals]
        await self._refusals.store(plain)

    async def newest(self, actor: str, expectation: str) -> Sequence[Refusal]:
        """See `Refusals.newest`."""
        return await self._refusals.newest(actor, expectation)

    async def newest_seq(self) -> int:
        """See `Refusals.newest_seq`."""
        return await self._refusals.newest_seq()

    async def after(self, seq: int, *, actor: str = "") -> Sequence[RecordedRefusal]:
        """See `Refusals.after`."""
        return await self._refusals.after(seq, actor=actor)
