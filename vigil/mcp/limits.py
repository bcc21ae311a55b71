"""What one answer and one caller may take. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

ROWS_MAX: Final = 50
"""Most rows of an answer."""

ROWS_USUAL: Final = 20
"""How many rows a list returns by default: what a model reads costs money."""

ANSWER_BYTES_MAX: Final = 256 * 1024
"""Largest answer, in bytes of JSON."""

BODY_BYTES_MAX: Final = 1024 * 1024
"""Largest request over HTTP, in bytes: the largest payload of an event, and some."""

CALLS_PER_MINUTE_MAX: Final = 120
"""Most requests of one caller in a minute that read or change something. A task that is looked at
every second leaves room for as many other calls."""

MINUTE_S: Final = 60.0

CALLERS_MAX: Final = 1_000
"""Most callers whose requests are counted at a time; of more, the oldest are forgotten."""

STREAMS_MAX: Final = 100
"""Most streams of changes that are open at a time."""


class CallRate:
    """Counts the requests of each caller, minute by minute."""

    def __init__(self, per_minute: int = CALLS_PER_MINUTE_MAX) -> None:
        self.per_minute = per_minute
        self._counted: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_s(self, who: str, *, now_s: float) -> float:
        """Count a request of `who`; return how long to wait first, in seconds, 0: not at all."""
        since_s, count = self._counted.get(who, (now_s, 0))
        if now_s - since_s >= MINUTE_S:
            self._counted.pop(who, None)
            since_s, count = now_s, 0
        if count >= self.per_minute:  # guard: calls-per-minute-capped
            return MINUTE_S - (now_s - since_s)
        self._counted[who] = since_s, count + 1
        while len(self._counted) > CALLERS_MAX:
            self._counted.popitem(last=False)
        return 0.0
