"""Ways to put into the object store: what is named again and again, and what can be missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from streams.clock import Clock
from streams.errors import StreamError
from streams.ports.objects import ObjectStore, digest_of

log = structlog.get_logger("vigil.objects")

T = TypeVar("T")

AGAIN_S: Final = 8_640.0
"""After so many seconds an object that is named still is put again: a tenth of a day, which is the
shortest time that a store may have."""

REMEMBERED_MAX: Final = 1_000
"""Most objects that are remembered to have been put: the oldest are put again."""

PUT_S_MAX: Final = 2.0
"""How long a put of what can be missed may take, in seconds: 5 MiB took 36 ms when measured."""

AWAY_S: Final = 60.0
"""How long nothing that can be missed is put after a put has failed, in seconds."""


class LastingObjects:
    """The objects that were put from here lately."""

    def __init__(self, objects: ObjectStore, clock: Clock) -> None:
        """Put into `objects`."""
        self._objects, self._clock = objects, clock
        self._put_s: dict[str, float] = {}

    async def put(self, data: bytes) -> str:
        """Keep `data` for at least eight tenths of the store's time, and return its digest."""
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


@dataclass
class StoreOutage:
    """What a node knows of outages of its object store."""

    tried_again_s: float | None = None
    """When something that can be missed is put again; None: the last put was done."""


async def best_effort(
    put: Callable[[], Awaitable[T]], outage: StoreOutage, clock: Clock
) -> T | None:
    """Return what `put` returns, of something that can be missed; None: it is not put.

    An object store that is away holds up what is put just then, for `PUT_S_MAX`; for `AWAY_S` after
    that nothing is tried. A put that takes longer counts as that, too. The log says once that it is
    away, and that it is back.
    """
    # guard: away-store-not-asked
    if outage.tried_again_s is not None and clock.monotonic_s() < outage.tried_again_s:
        return None
    try:
        async with clock.timeout(PUT_S_MAX):  # guard: missable-put-bounded
            done = await put()
    except (TimeoutError, StreamError) as error:
        if outage.tried_again_s is None:  # guard: away-store-told-once
            why = str(error) or f"no answer within {PUT_S_MAX:g} s"
            log.warning("object store away: prompts of models are not kept", error=why)
        outage.tried_again_s = clock.monotonic_s() + AWAY_S
        return None
    if outage.tried_again_s is not None:
        log.info("object store back: prompts of models are kept again")
        outage.tried_again_s = None
    return done
