"""The keys of a bucket, as messages: what each has, or that it is gone.

| the last message on the key | the key |
| --- | --- |
| none | does not exist |
| has `Nats-Marker-Reason` | lapsed: the server wrote it, or who watched, when its time was over |
| has `KV-Operation` | was removed |
| anything else | has the message's body as its value |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias, TypeVar

from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import Headers
from streams.jetstream.messages import stored
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.messages.grouping import Groups
from streams.jetstream.messages.publish import Write
from streams.jetstream.messages.stored import Stored
from streams.jetstream.ports.configs import bucket_stream, key_subject
from streams.jetstream.ports.follow import OrderedReader, Tails

T = TypeVar("T")

KeyMessage: TypeAlias = Stored | Arrival

PURGE: dict[str, str] = {headers.KV_OPERATION: "PURGE", headers.ROLLUP: "sub"}
"""Marks a message that removes its key."""


class Keys:
    """One bucket, read and written by key. Each write names the revision it expects."""

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._prefix = key_subject(name, "")
        self.stream = bucket_stream(name)
        self._group = Groups(link).to(self.stream)

    async def write(
        self, key: str, value: bytes, *, more: Headers, expected: int | None, alone: bool = False
    ) -> int:
        """Return the new revision. `expected` None is any, 0 is none. Raises like `store`.

        What will often be refused goes `alone`: in a batch, all others would be refused with it.
        """
        check = {} if expected is None else {headers.EXPECTED_SEQ: str(expected)}
        subject = self._link.settings.to_bucket(self._prefix + key)
        write = Write(subject, value, {**check, **more}, key=subject)
        ack = await self._group.store(write, alone=alone)
        return ack.seq

    async def last(self, key: str) -> Stored | None:
        """Return the key's last message, as the leader knows it, or None. May be a tombstone."""
        return await stored.last(self._link, self.stream, self._prefix + key)

    def every(self, *, under: str = "") -> AsyncGenerator[Stored, None]:
        """Return the last message of every key, or of those under `under`, by `every_after`."""
        return stored.every_after(self._link, self.stream, self._all(under), seq=0)

    async def names(self, *, under: str = "") -> set[str]:
        """Return the keys of which anything is stored, gone ones too, as the leader knows them."""
        subjects = await stored.counts(self._link, self.stream, self._all(under))
        return {subject.removeprefix(self._prefix) for subject in subjects}

    def key_of(self, message: KeyMessage) -> str:
        """Return the key that `message` is about."""
        return message.subject.removeprefix(self._prefix)

    def reader(
        self, decode: Callable[[Arrival], T], *, after: int, tails: Tails[T], under: str = ""
    ) -> OrderedReader[T]:
        """Return a reader of the changes past revision `after`: all, or those under `under`."""
        filters = (self._all(under),) if under else ()
        return OrderedReader(
            self._link, self.stream, decode, after=after, filters=filters, tails=tails
        )

    def _all(self, under: str) -> str:
        return f"{self._prefix}{under}.>" if under else f"{self._prefix}>"


def has_lapsed(message: KeyMessage) -> bool:
    """Return whether the key's time to live was over."""
    return headers.MARKER_REASON in message.headers


def is_gone(message: KeyMessage | None) -> bool:
    """Return whether the key does not exist, whatever is left of it."""
    if message is None or has_lapsed(message):
        return True
    return headers.KV_OPERATION in message.headers
