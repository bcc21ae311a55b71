"""Brings the past of one aggregate back from the archive, for whoever cannot reach that.

Its messages become one object of the stack's object store, and a key of the registry names it. The
key goes after a time, and the object not before. The journal is not written: what is there twice
would be followed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from streams.errors import DamagedObject
from streams.json import UNDECODABLE
from streams.keys import restored_key
from streams.layout import Kind
from streams.ports.all import Ports
from streams.ports.states import RawMessage


class RestoredPast(msgspec.Struct, frozen=True, kw_only=True):
    """Where the past of an aggregate is."""

    digest: str
    """Of the object."""
    commits: int
    by: str
    at: datetime


_keys: msgspec.json.Decoder[RestoredPast] = msgspec.json.Decoder(RestoredPast)
_messages: msgspec.msgpack.Decoder[list[RawMessage]] = msgspec.msgpack.Decoder(list[RawMessage])


async def restore(
    ports: Ports,
    kind: Kind,
    key: str,
    messages: Sequence[RawMessage],
    *,
    by: str,
    at: datetime,
    ttl_s: int,
) -> RestoredPast:
    """Keep `messages` as the past of an aggregate, for whole seconds."""
    digest = await ports.objects.put(msgspec.msgpack.encode(messages))
    past = RestoredPast(digest=digest, commits=len(messages), by=by, at=at)
    await ports.registry.put(restored_key(kind, key), msgspec.json.encode(past), ttl_s=ttl_s)
    return past


async def read_restored(ports: Ports, kind: Kind, key: str) -> Sequence[RawMessage]:
    """Return the past of an aggregate that was restored; nothing, if it was not, or is over.

    Raises:
        DamagedObject: what is stored is something else.
    """
    entry = await ports.registry.get(restored_key(kind, key))
    if entry is None or entry.value is None:
        return ()
    digest = _keys.decode(entry.value).digest
    data = await ports.objects.get(digest)
    if data is None:
        return ()
    try:
        return _messages.decode(data)
    except UNDECODABLE as error:
        raise DamagedObject(digest) from error
