"""Keys of subjects of data in a bucket of their own, `<stack>-keys`.

A key is put once and never replaced, so its bytes are in one message, which destroying it
overwrites on the disk of each server.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from streams.errors import Unavailable, UnknownOutcome, UnreadableEvent
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.messages.publish import Patience, WrongSequence
from streams.jetstream.ports.configs import bucket_stream, key_subject
from streams.jetstream.ports.keys import Keys, is_gone
from streams.ports.subject_keys import KEY_BYTES, SubjectKey
from streams.subjects import Stack

ID_BYTES: Final = 8
"""Length of the id of a key."""

_decoder: Final = msgspec.json.Decoder(SubjectKey)


class JetStreamSubjectKeys:
    """`SubjectKeys` on the bucket of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link = link
        self._bucket = stack.keys_bucket()
        self._keys = Keys(link, self._bucket)

    async def get(self, name: str) -> SubjectKey | None:
        """See `SubjectKeys.get`."""
        found = await self._keys.last(name)
        if found is None or is_gone(found):
            return None
        try:
            return _decoder.decode(found.data)
        except msgspec.DecodeError as error:
            subject = key_subject(self._bucket, name)
            raise UnreadableEvent(subject, seq=found.seq, detail=str(error)) from error

    async def make(self, name: str) -> SubjectKey:
        """See `SubjectKeys.make`."""
        patience = Patience(self._link, f"key {name}")
        made = SubjectKey(id=secrets.token_hex(ID_BYTES), secret=secrets.token_bytes(KEY_BYTES))
        while True:
            if (found := await self.get(name)) is not None:
                return found
            try:
                await self._keys.write(name, msgspec.json.encode(made), more={}, expected=0)
            except Unavailable as error:
                await patience.after(error)
            except WrongSequence as error:  # Another node was faster, or we were.
                await patience.after(UnknownOutcome(name, detail=str(error)))

    async def destroy(self, name: str) -> SubjectKey | None:
        """See `SubjectKeys.destroy`."""
        found, key = await self._keys.last(name), await self.get(name)
        if found is None:
            return None
        stream = bucket_stream(self._bucket)
        # guard: destroyed-key-overwritten
        await api.ask(
            self._link, f"STREAM.MSG.DELETE.{stream}", {"seq": found.seq}, about=f"key {name}"
        )
        return key

    async def names(self) -> Sequence[str]:
        """See `SubjectKeys.names`."""
        return sorted(await self._keys.names())
