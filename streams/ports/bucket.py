"""The port to buckets: keys with values and revisions, which every node shares.

A stack has two of them beside its claims. The *registry* has small settings that every node
watches. The *gates* have what gates remember: cooldowns, circuit breakers, live nodes. Most of
those keys have a time to live, which the server counts, so no node need be up to remove them.

    (absent) ──put──▶ stands ──delete──▶ (absent)
                      │ ▲ └─lapse, with a time to live, unless it is put again─▶ (absent)
                      └─┘
                      put

A revision identifies one put, so a writer that names the revision it has read (0: no key) changes
exactly that. A key that was deleted, or has lapsed, does not exist.

In the registry that is for good. In the gates, a key that was put without a time to live and
deleted may stand again, as it was, after a single server was killed an hour later or more: what can
be deleted there has a time to live, or tells by itself whether it still holds, as a lock does that
names its holder. A key is put either always with a time to live or never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

TTL_S_MIN: Final = 1
"""Shortest time to live, in seconds: the server's own minimum (ADR-43 of the server)."""

TTL_S_MAX: Final = 10 * 365 * 24 * 3600
"""Longest, ten years: what is to last longer is put without one. The server counts nanoseconds in
64 bits, which end after 292 years."""


class BucketEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A key's value, or the fact that it is gone."""

    key: str
    value: bytes | None
    """None: the key was deleted, or has lapsed."""
    revision: int
    """Of its last change. To put again what is gone, name 0."""


class BucketWatch(Protocol):
    """A position in a bucket's history."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[BucketEntry]:
        """Return the next changes in order: up to `most`, none after `wait_s` of silence."""


class Bucket(Protocol):
    """Keys with values and revisions. Keys are tokens joined by dots, such as `mode.n1`."""

    async def put(
        self, key: str, value: bytes, *, after: int | None = None, ttl_s: int | None = None
    ) -> int:
        """Set `key` and return its new revision.

        Args:
            after: The revision at which the key must still be, or 0 for none; None is any.
            ttl_s: After how many whole seconds it goes by itself, `TTL_S_MIN` to `TTL_S_MAX`;
                None is never, also if an earlier put had one. It counts from when the server has
                stored this, and a key goes up to 0.25 s late (measured with 2.15), never early.

        Raises:
            RevisionConflict: the key is at another revision. If the answer to an earlier try
                was lost, the value may have stood there for a while.
            ValueError: `ttl_s` is out of its range.
            UnknownOutcome: no answer. It may be set; the next reading tells.
            Unavailable: the server was away or refused. It is not set.
        """

    async def get(self, key: str) -> BucketEntry | None:
        """Return the key's entry, as the leader knows it, or None if it does not exist."""

    async def delete(self, key: str, *, after: int | None = None) -> None:
        """Remove `key`, if it exists.

        Raises:
            RevisionConflict: it is at another revision than `after`, and stands. None is any.
        """

    async def entries(
        self, *, under: str = "", from_leader: bool = False
    ) -> Mapping[str, BucketEntry]:
        """Return the entry of every key, or of those that begin with `under` and a dot.

        Any replica may answer, so what has just been put may be missing for moments. `from_leader`
        asks the leader for each key, of which it lists 100,000 at most, so nothing that stands is
        missing.
        """

    def watch(self, *, under: str = "") -> AbstractAsyncContextManager[BucketWatch]:
        """Return a watch: first every entry that stands now, then each change as it happens.

        Of every key, or of those that begin with `under` and a dot: nobody else's changes are sent.
        A lapse is a change as a delete is. Only the newest change of each key is sure to be seen,
        and one that is gone only by those who look again within an hour.
        """


def require_ttl(ttl_s: int | None) -> None:
    """Raise `ValueError` unless a key can live for `ttl_s`; None is for ever."""
    if ttl_s is not None and not TTL_S_MIN <= ttl_s <= TTL_S_MAX:
        raise ValueError(f"a key cannot live for {ttl_s} s; use {TTL_S_MIN} to {TTL_S_MAX:,}")
