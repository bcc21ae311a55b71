"""The object store of a stack that encrypts what it has of its subjects of data.

An encrypted object is `MAGIC` and a `Sealed` as JSON; its digest is of that. Nothing else that is
put begins so: it is JSON.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streams.errors import DamagedObject
from streams.json import UNDECODABLE
from streams.model.sealed import ERASED_JSON, Sealed
from streams.ports.objects import ObjectStore
from streams.sealing.seals import Seals
from streams.sealing.subjects import whose_subject
from streams.subjects import Stack

MAGIC: Final = b"vigil sealed 1\n"
"""Begins an encrypted object."""

_decoder: Final = msgspec.json.Decoder(Sealed)


class SealedObjects:
    """`ObjectStore` on another one."""

    def __init__(self, objects: ObjectStore, seals: Seals, stack: Stack) -> None:
        self._objects, self._seals, self._stack = objects, seals, stack

    async def put(self, data: bytes, *, about: str = "") -> str:
        """See `ObjectStore.put`."""
        name = await self._seals.name_of(whose_subject(about, self._stack)) if about else ""
        if name:  # guard: object-is-encrypted
            data = MAGIC + msgspec.json.encode(await self._seals.seal(data, name))
        return await self._objects.put(data, about=about)

    async def renew(self, digest: str) -> bool:
        """See `ObjectStore.renew`: it stays as it is, encrypted or not."""
        return await self._objects.renew(digest)

    async def get(self, digest: str) -> bytes | None:
        """See `ObjectStore.get`; of what is erased, `{"$erased": true}`."""
        data = await self._objects.get(digest)
        if data is None or not data.startswith(MAGIC):
            return data
        try:
            opened = await self._seals.unseal(_decoder.decode(data[len(MAGIC) :]))
        except UNDECODABLE as error:
            raise DamagedObject(digest) from error
        return bytes(ERASED_JSON) if opened is None else opened
