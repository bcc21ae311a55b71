"""Objects in a dict. The stack's one clock plays the server's."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from streams.clock import Clock
from streams.ports.objects import DAYS, digest_of

AGE: Final = timedelta(days=DAYS)
"""How long an object is kept after its last put."""


class MemoryObjects:
    """See `streams.ports.objects.ObjectStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, bytes] = {}
        self._put_at: dict[str, datetime] = {}

    async def put(self, data: bytes, *, about: str = "") -> str:  # noqa: ARG002 - of ports above
        """See `ObjectStore.put`."""
        digest = digest_of(data)
        self._objects[digest], self._put_at[digest] = data, self._clock.now()
        return digest

    async def renew(self, digest: str) -> bool:
        """See `ObjectStore.renew`."""
        if await self.get(digest) is None:
            return False
        self._put_at[digest] = self._clock.now()
        return True

    async def get(self, digest: str) -> bytes | None:
        """See `ObjectStore.get`."""
        put_at = self._put_at.get(digest)
        is_over = put_at is None or self._clock.now() - put_at >= AGE
        return None if is_over else self._objects[digest]

    def once_put(self, digest: str) -> bytes | None:
        """Return what was ever put under `digest`, be its time over; None: nothing was."""
        return self._objects.get(digest)
