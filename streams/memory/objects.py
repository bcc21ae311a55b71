"""Objects in a dict. The stack's one clock plays the server's."""

from __future__ import annotations

from typing import Final

from streams.clock import Clock
from streams.ports.objects import DAYS, digest_of

AGE_S: Final = DAYS * 86_400.0
"""How long an object stands after its last put, in seconds."""


class MemoryObjects:
    """See `streams.ports.objects.ObjectStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, tuple[bytes, float]] = {}
        """Digest → the object, and when it was put last."""

    async def put(self, data: bytes) -> str:
        """See `ObjectStore.put`."""
        digest = digest_of(data)
        self._objects[digest] = data, self._clock.monotonic_s()
        return digest

    async def get(self, digest: str) -> bytes | None:
        """See `ObjectStore.get`."""
        return self.standing(digest)

    def standing(self, digest: str) -> bytes | None:
        """Return what stands under `digest`, at once; None: nothing does."""
        data, put_s = self._objects.get(digest, (None, 0.0))
        return data if self._clock.monotonic_s() - put_s < AGE_S else None
