"""How far long work is, as lines on stderr."""

from __future__ import annotations

import sys
from typing import Final

from streams.clock import SystemClock

TOLD_EVERY_S: Final = 1.0
"""Between two lines of progress, in seconds."""


class ProgressLines:
    """Prints now and then how far it is, and at the end of each stage. Call it with each step."""

    def __init__(self, *, unit: str = "") -> None:
        """Tell nothing yet; `unit`: what is counted, such as `bytes`, in the plural."""
        self.has_told = False
        self._unit = f" {unit}" if unit else ""
        self._clock = SystemClock()
        self._told_s = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Say how much of a stage is done."""
        now_s = self._clock.monotonic_s()
        if done < total and now_s - self._told_s < TOLD_EVERY_S:
            return
        self.has_told, self._told_s = True, now_s
        print(f"{stage}: {done:,} of {total:,}{self._unit}", file=sys.stderr, flush=True)
