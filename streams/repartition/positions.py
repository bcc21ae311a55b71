"""Up to where reactors have followed the streams of a stack, before and after those are moved.

Sequences change in a move, so what is left to be followed up in the old streams cannot be found
again in the new ones. Without a position a reactor follows a stream from its beginning, and would
publish again what was published before the move.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from streams.errors import Incompatible, RevisionConflict, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.keys import published_key
from streams.layout import AGGREGATE_STREAMS
from streams.model.followed import Followed, decode_followed, encode_followed
from streams.ports.bucket import Bucket
from streams.subjects import Stack

TRIES_MAX: Final = 8
"""Most tries to write a position, which nobody else writes while the lease is ours."""

Check: TypeAlias = Callable[[], Awaitable[None]]
"""Raises `LeaseLost` if another run may move the stack by now."""


async def require_followed(link: Link, gates: Bucket, stack: Stack) -> None:
    """Raise `Incompatible` if the reactors have not followed all commits of `stack`.

    The result is final if no client can append to the streams of `stack` any more.
    """
    left, is_covering = 0, False
    for stream in AGGREGATE_STREAMS:
        for partition in stack.partitions_of(stream):
            entry = await gates.get(published_key(stack.part(stream, partition)))
            followed = decode_followed(entry.value if entry is not None else None)
            head = await stored.newest_seq(link, stack.stream(stream, partition))
            left += max(0, head - followed.seq)
            is_covering |= followed.covered_from > 0
    if is_covering:  # guard: covered-episodes-not-moved
        raise Incompatible(
            f"episodes of stack {stack.name} have lost their node, and no other was called",
            remedy="Start a node without --no-react for a minute, and stop it.",
        )
    if left:  # guard: behind-reactors-not-moved
        raise Incompatible(
            f"the reactors have not followed {left:,} commits of stack {stack.name}",
            remedy="Start a node without --no-react, wait until `vigil doctor` shows every reactor "
            "at the newest commit, and stop the node.",
        )


async def write_positions(link: Link, gates: Bucket, stack: Stack, *, check: Check) -> None:
    """Write positions that say that all commits of the journal and the state were followed.

    Dead letters stay where they are, and with them their position, if there is one.

    `check` is called before each and raises if the lease is lost: then another run may have ended
    the move, and the position of a reactor may be before the newest commit.
    """
    for stream in AGGREGATE_STREAMS:  # guard: positions-of-staying-kept
        for partition in stack.partitions_of(stream):
            key = published_key(stack.part(stream, partition))
            await _write(gates, key, link, stack.stream(stream, partition), check)


async def _write(gates: Bucket, key: str, link: Link, stream: str, check: Check) -> None:
    for _ in range(TRIES_MAX):
        # In this order: what is written after the check is another revision.
        entry = await gates.get(key)
        await check()  # guard: lost-lease-writes-no-position
        head = await stored.newest_seq(link, stream)
        try:
            # guard: reactor-position-kept
            await gates.put(
                key, encode_followed(Followed(head)), after=entry.revision if entry else 0
            )
        except RevisionConflict:  # Or the answer to our own was lost: then we still have the lease.
            continue
        return
    raise Unavailable(key, detail=f"it changed {TRIES_MAX} times meanwhile")
