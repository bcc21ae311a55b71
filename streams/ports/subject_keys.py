"""The port to the keys of subjects of data. To destroy one is to erase what it encrypts.

(none) ──make──▶ kept ──destroy──▶ (none) ──make──▶ kept, another key
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

KEY_BYTES: Final = 32
"""Length of a key: AES-256."""


class SubjectKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    id: str
    """Random: no two keys share one."""
    secret: bytes


class SubjectKeys(Protocol):
    """The keys of one stack, by their names (`streams.model.sealed.key_name`)."""

    async def get(self, name: str) -> SubjectKey | None:
        """Return the key of that name as the leader knows it; None: there is none."""

    async def make(self, name: str) -> SubjectKey:
        """Return the key of that name, which is made if there is none.

        Raises:
            UnknownOutcome, Unavailable: the server was away or refused. Making it again is safe.
        """

    async def destroy(self, name: str) -> SubjectKey | None:
        """Remove the key, and its bytes from the disk; return what it was; None: there was none.

        Raises as `make`; destroying it again is safe.
        """

    async def names(self) -> Sequence[str]:
        """Return the names of all keys, in order."""
