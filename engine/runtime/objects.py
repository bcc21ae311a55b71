"""`LastingObjects`: puts into the object store what is named again and again, and seldom."""

from __future__ import annotations

from typing import Final

from streams.clock import Clock
from streams.ports.objects import ObjectStore, digest_of

AGAIN_S: Final = 86_400.0
"""After so many seconds an object that is named still is put again: a day of the at least nine
tenths of the store's time for which it is kept."""

REMEMBERED_MAX: Final = 1_000
"""Most objects that are remembered to have been put: the oldest are put again."""


class LastingObjects:
    """The objects that were put from here lately."""

    def __init__(self, objects: ObjectStore, clock: Clock) -> None:
        """Put into `objects`."""
        self._objects, self._clock = objects, clock
        self._put_s: dict[str, float] = {}

    async def put(self, data: bytes) -> str:
        """Keep `data` for at least the time of the store less a day, and return its digest."""
        digest, now_s = digest_of(data), self._clock.monotonic_s()
        put_s = self._put_s.get(digest)
        # guard: lasting-object-put-again
        is_to_be_put = put_s is None or now_s - put_s >= AGAIN_S
        if not is_to_be_put:  # guard: lasting-object-put-once
            return digest
        await self._objects.put(data)
        self._put_s.pop(digest, None)
        self._put_s[digest] = now_s
        if len(self._put_s) > REMEMBERED_MAX:
            del self._put_s[next(iter(self._put_s))]
        return digest
