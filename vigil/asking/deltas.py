"""What models of an episode answer, while they do, as rows among those of its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from streams.model.deltas import DELTA, NO_DELTAS, DeltaOrder, PlacedDelta

if TYPE_CHECKING:
    from projections.postgres.query_result import Row
    from streams.clock import Clock
    from streams.ports.deltas import DeltaListener

PAGE_MAX: Final = 100
"""Most deltas that are taken at once."""


class HeardDeltas:
    """Hears the deltas of one episode."""

    def __init__(self, listener: DeltaListener, clock: Clock) -> None:
        self._listener, self._clock = listener, clock
        self._order = DeltaOrder()

    async def rows(self, *, within_s: float) -> AsyncIterator[Row]:
        """Yield what comes within so many seconds; nothing of attempts that have died."""
        until_s = self._clock.monotonic_s() + within_s
        while (left_s := until_s - self._clock.monotonic_s()) > 0:
            for each in await self._listener.receive(most=PAGE_MAX, wait_s=left_s):
                placed = self._order.place(each)
                if placed is not None:
                    yield row_of(placed)


def row_of_silence(why: str) -> Row:
    """Return a row that says why no deltas are heard."""
    line = f"what models answer is not shown before their steps: {why}"
    return {"kind": NO_DELTAS, "why": why, "line": line}


def row_of(placed: PlacedDelta) -> Row:
    """Return a delta as a row."""
    delta = placed.delta
    return {
        "kind": DELTA,
        "path": delta.path,
        "attempt": delta.attempt,
        "place": delta.place,
        "text": delta.text,
        "tools": [*delta.tools],
        "end": None if delta.end is None else delta.end.value,
        "missing": placed.missing,
        "is_anew": placed.is_anew,
        "line": delta.text,
    }
