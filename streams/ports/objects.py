"""The port to the object store: bytes of any length under their digest, for a limited time.

What is too large for one message is put here before the message that names it is written. Its
digest shows whether what comes back is what was put.

    (absent) ──put──▶ kept ──its age is over, unless it is put again or renewed─▶ (absent)
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Protocol

DAYS: Final = 90
"""How long an object is kept after its last put, in days, by default."""

REUSED_SHARE: Final = 0.1
"""A put reuses the stored object if at most this share of its time is over. So one object is stored
at most ten times within its time, however often it is put."""


KEPT_SHARE: Final = 1 - REUSED_SHARE
"""An object is kept for at least this share of its time."""

RENEWED_SHARE: Final = 0.5
"""What is renewed is stored again if more than this share of its time is over: so it is stored
twice within its time at most, and nobody has to renew it more often than that."""


class ObjectStore(Protocol):
    """Bytes by digest. A stack has one."""

    async def put(self, data: bytes, *, about: str = "") -> str:
        """Keep `data` from now on, and return its SHA-256 in hex.

        `about` is the subject of the episode that it is of; empty: it is of none. A stack that
        encrypts what it has of the episode's subject keeps it encrypted, and returns the digest of
        that.

        Repeating it is safe, and so are several puts of the same at a time. It is kept for at
        least nine tenths of the store's time.

        Raises:
            UnknownOutcome, Unavailable: the server was away or refused. It may be kept.
        """

    async def renew(self, digest: str) -> bool:
        """Keep what is under `digest` for at least half of the store's time from now on.

        Return whether it is there; False: nothing was put, or its time is over. Repeating it is
        safe, and what is encrypted stays as it is.

        Raises:
            DamagedObject: what is stored there is something else.
            UnknownOutcome, Unavailable: the server was away or refused. It may be kept.
        """

    async def get(self, digest: str) -> bytes | None:
        """Return what was put under `digest`; None: nothing was, or its time is over.

        Raises:
            DamagedObject: what is stored there is something else.
        """


def digest_of(data: bytes) -> str:
    """Return the digest that `data` is stored under."""
    return sha256(data).hexdigest()
