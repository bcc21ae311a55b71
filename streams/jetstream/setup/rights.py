"""Checks the rights of a node's user on the server, before the node takes any work.

A server does not list a user's rights. It drops a message that is not allowed and reports that in
an error that belongs to no request, so a node would never notice a missing acknowledgement. So each
right is tried by a request that changes nothing if it is allowed: it expects an impossible
sequence, is no JSON, or is about a consumer that does not exist.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Final, NamedTuple

from streams.errors import Incompatible, Unavailable
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.ports.configs import (
    bucket_stream,
    chunk_subject,
    info_subject,
    key_subject,
    object_stream,
)
from streams.layout import Stream
from streams.subjects import Stack

NAMED_MAX: Final = 5
"""Most rights that the error names; there may be hundreds, and one line has to hold them."""

_NOBODY: Final = "vigil-right"
"""In the place of every name, key and id: nothing has that name."""

_NEVER: Final[Headers] = {headers.EXPECTED_SEQ: str(2**62)}
"""The headers of a message that is refused: no subject is at this sequence."""

_OF_NOTHING: Final = json.dumps({"filter": _NOBODY, "seq": 1}).encode()
"""The body of a purge: one whose body is no JSON empties the stream (2.15)."""

_ANYTHING: Final = ">"


class Right(NamedTuple):
    """To publish on some subjects."""

    subjects: str
    """As an operator writes them."""
    data: bytes = b"?"
    """The body to send. The API takes nothing but JSON, unless it says otherwise."""
    more: Headers | None = None

    @property
    def tried(self) -> str:
        """One of the subjects."""
        return self.subjects.replace(_ANYTHING, _NOBODY)


def rights_of_node(stack: Stack, settings: LinkSettings) -> list[Right]:
    """Return what a node of `stack` must be allowed once its streams are there."""
    parts = [(stream, part) for stream in Stream for part in stack.partitions_of(stream)]
    buckets = [stack.claims_bucket(), stack.registry_bucket(), stack.gates_bucket()]
    written = [each for part in parts for each in stack.stream_subjects(*part)]
    written += [settings.to_bucket(key_subject(bucket, _ANYTHING)) for bucket in buckets]
    store = stack.object_store()
    # guard: storing-needs-the-right
    written += [chunk_subject(store, _ANYTHING), info_subject(store, _ANYTHING)]
    streams = [stack.stream(*part) for part in parts] + [bucket_stream(each) for each in buckets]
    work = [stack.stream(Stream.WORK, part) for part in stack.partitions_of(Stream.WORK)]
    return [
        *(Right(subjects, more=_NEVER) for subjects in written),
        *(Right(each) for stream in streams for each in _to_read(stream, settings)),
        *(Right(each) for each in _to_get(object_stream(store), settings)),
        # guard: rights-empty-no-stream
        *(Right(settings.api(f"STREAM.PURGE.{stream}"), _OF_NOTHING) for stream in work),
    ]


def _to_read(stream: str, settings: LinkSettings) -> Iterator[str]:
    yield from _to_get(stream, settings)
    for operation in ("CREATE", "INFO", "DELETE", "MSG.NEXT"):
        yield settings.api(f"CONSUMER.{operation}.{stream}.{_ANYTHING}")
    yield f"$JS.ACK.{stream}.{_ANYTHING}"


def _to_get(stream: str, settings: LinkSettings) -> Iterator[str]:
    for operation in ("STREAM.MSG.GET", "DIRECT.GET"):
        yield settings.api(f"{operation}.{stream}")


async def require_rights(link: Link, stack: Stack) -> None:
    """Raise `Incompatible`, naming what is not, unless this user is allowed what a node needs."""
    rights = rights_of_node(stack, link.settings)
    allowed = await asyncio.gather(*(_is_allowed(link, right) for right in rights))
    lacking = [right.subjects for right, is_so in zip(rights, allowed, strict=True) if not is_so]
    if not lacking:
        return
    others = len(lacking) - NAMED_MAX
    named = ", ".join(lacking[:NAMED_MAX]) + (f" and {others} more" if others > 0 else "")
    raise Incompatible(
        f"a node of stack {stack.name!r} may not publish to {named}",
        remedy="Allow it for this user in the server's permissions.",
    )


async def _is_allowed(link: Link, right: Right) -> bool:
    """Return whether the server lets a request through, whatever becomes of it then."""
    try:
        await link.request(right.tried, right.data, more=right.more)
    except Incompatible:
        return False  # guard: missing-right-refused
    except Unavailable:
        return True  # Nobody serves that, as was to be expected; or it is away, and says so soon.
    return True
