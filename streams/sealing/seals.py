"""Encrypts and decrypts for the subjects of data of one stack: it finds whose, and with which key.

What it has looked up it remembers: keys for `KEYS_S`, so that a destroyed one is of no use to this
process after that; whose an aggregate is for ever, as that never changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from streams.clock import Clock
from streams.model.sealed import Sealed, key_name
from streams.ports.log import EventLog
from streams.ports.subject_keys import SubjectKey, SubjectKeys
from streams.sealing.box import seal, unseal
from streams.sealing.subjects import DataOwner, Whose, whose_events
from streams.subjects import Stack

KEYS_S: Final = 5.0
"""How long a key is remembered, in seconds: what is erased is out of each process after that."""

KEYS_MAX: Final = 10_000
"""Most keys that are remembered."""

OWNERS_MAX: Final = 100_000
"""Most aggregates of which it is remembered whose they are."""

LINKS_MAX: Final = 16
"""Most aggregates on the way to the one that has the subject: a finding, its episode, the parent
of that, the instance of the parent."""


class _Remembered(msgspec.Struct, frozen=True):
    key: SubjectKey
    until_s: float


class Seals:
    """The keys of a stack, and whose its aggregates are."""

    def __init__(
        self, log: EventLog, keys: SubjectKeys, *, stack: Stack, kinds: Sequence[str], clock: Clock
    ) -> None:
        """`log` is read for the beginnings of aggregates, encrypted or not."""
        self._log, self._keys, self._stack, self._clock = log, keys, stack, clock
        self.kinds = tuple(kinds)
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._owners: OrderedDict[DataOwner, str] = OrderedDict()

    async def name_of_first(self, *several: Whose) -> str:
        """Return the name of the key of the first of which it is known; empty: it has none."""
        for whose in several:
            if (name := await self.name_of(whose)) is not None:
                return name
        return ""

    async def name_of(self, whose: Whose) -> str | None:
        """Return the name of the key of a subject of data; empty: it has none.

        None: nobody knows. Where it began is on its way to the log, or has left it for an archive.
        """
        met: list[DataOwner] = []
        while isinstance(whose, DataOwner) and len(met) < LINKS_MAX:
            if (known := self._owners.get(whose)) is not None:
                return self._noted(met, known)
            met.append(whose)
            records = await self._log.read(self._stack.aggregate(whose.kind, whose.key))
            if not records:
                return None
            first = records[0].commit
            if first.sealed is not None:
                return self._noted(met, first.sealed.name)
            whose = whose_events(first.events, self.kinds)
        return self._noted(met, key_name(whose) if isinstance(whose, str) else "")

    def note(self, owner: DataOwner, name: str) -> None:
        """Remember with which key an aggregate is encrypted; empty: with none."""
        self._owners[owner] = name
        if len(self._owners) > OWNERS_MAX:
            self._owners.popitem(last=False)

    async def seal(self, data: bytes, name: str) -> Sealed:
        """Return `data` encrypted with the key of that name, which is made if there is none."""
        key = self._known(name)
        if key is None:
            key = await self._keys.make(name)
            self._remember(name, key)
        return seal(data, key, name=name)

    async def unseal(self, sealed: Sealed) -> bytes | None:
        """Return what was encrypted; None: its key was destroyed.

        Raises:
            ValueError: it is damaged.
        """
        key = self._known(sealed.name)
        if key is None or key.id != sealed.key_id:
            key = self._remember(sealed.name, await self._keys.get(sealed.name))
        if key is None or key.id != sealed.key_id:  # guard: another-key-opens-nothing
            return None
        return unseal(sealed, key)

    def _noted(self, owners: Sequence[DataOwner], name: str) -> str:
        for each in owners:
            self.note(each, name)
        return name

    def _known(self, name: str) -> SubjectKey | None:
        found = self._remembered.get(name)
        # guard: destroyed-key-forgotten
        if found is None or self._clock.monotonic_s() >= found.until_s:
            return None
        return found.key

    def _remember(self, name: str, key: SubjectKey | None) -> SubjectKey | None:
        self._remembered.pop(name, None)
        if key is not None:
            self._remembered[name] = _Remembered(key, self._clock.monotonic_s() + KEYS_S)
            if len(self._remembered) > KEYS_MAX:
                self._remembered.popitem(last=False)
        return key
