"""The port to the object store: bytes of any length under their digest, for a limited time.

What one message cannot hold is put here before the message that names it is written. Whoever has
the digest can tell whether what comes back is what was put.

    (absent) ──put──▶ stands ──its age is over, unless it is put again─▶ (absent)
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Protocol

DAYS: Final = 90
"""How long an object stands after its last put, in days, by default."""

REUSED_SHARE: Final = 0.1
"""A put reuses what stands if so much of its time at most is over. So one object is stored at most
ten times within its time, however often it is put."""


KEPT_SHARE: Final = 1 - REUSED_SHARE
"""An object stands for so much of its time at least."""


class ObjectStore(Protocol):
    """Bytes by digest. A stack has one."""

    async def put(self, data: bytes) -> str:
        """Keep `data` from now on, and return its SHA-256 in hex.

        Repeating it is safe, and so are several puts of the same at a time. It stands for at least
        nine tenths of the store's time.

        Raises:
            UnknownOutcome, Unavailable: the server was away or refused. It may be kept.
        """

    async def get(self, digest: str) -> bytes | None:
        """Return what was put under `digest`; None: nothing was, or its time is over.

        Raises:
            DamagedObject: what stands there is something else.
        """


def digest_of(data: bytes) -> str:
    """Return the digest under which `data` stands."""
    return sha256(data).hexdigest()
