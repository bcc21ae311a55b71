"""Changing a key of a bucket by what it holds: read it, decide, and change it as it was read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

from streams.errors import RevisionConflict, Unavailable
from streams.ports.bucket import Bucket, BucketEntry

TRIES_MAX: Final = 16
"""Most tries while others change the key at the same time."""

T = TypeVar("T")

Change: TypeAlias = tuple[T, bytes | None]
"""What the caller gets, and what the key is to hold; None: nothing."""


async def change_key(
    bucket: Bucket,
    key: str,
    decide: Callable[[BucketEntry | None], Awaitable[Change[T]]],
    *,
    tries_max: int = TRIES_MAX,
) -> T:
    """Change `key` as `decide` says of its entry; return what that says of it besides.

    `decide` is asked again, of a new entry, whenever another writer was faster. Nothing is written
    if the key holds already what it is to hold.

    Raises:
        Unavailable: others were faster `tries_max` times, or the server was away; it is unchanged.
        UnknownOutcome: no answer. It may be changed; asking again reads what is there.
    """
    for _ in range(tries_max):
        entry = await bucket.get(key)
        found, value = await decide(entry)
        before, revision = (entry.value, entry.revision) if entry is not None else (None, 0)
        if value == before:
            return found
        try:
            if value is not None:
                await bucket.put(key, value, after=revision)  # guard: key-put-as-read
            else:
                await bucket.delete(key, after=revision)  # guard: key-deleted-as-read
        except RevisionConflict:
            continue
        return found
    raise Unavailable(key, detail=f"others have changed it {tries_max} times meanwhile")
