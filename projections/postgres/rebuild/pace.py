"""How fast a rebuild goes: what is told of it, and what holds it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from streams.clock import Clock

TELL_S: Final = 1.0
"""Between two tellings within a stage, in seconds."""


class RebuildProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rebuild is."""

    stage: str
    """`reading`, `comparing` or `swapping`."""
    done: int
    """Messages of the log that were read, or tables that were compared."""
    total: int
    events: int
    """Events that were folded by this run."""
    events_per_s: float
    left_s: float | None
    """Until the end of the stage, in seconds, if it goes on like this. None: nobody knows yet."""


Tell: TypeAlias = Callable[[RebuildProgress], None]


class RebuildPace:
    """The pace of one run."""

    def __init__(self, clock: Clock, tell: Tell, *, events_per_s_max: float | None) -> None:
        self._clock, self._tell, self._most = clock, tell, events_per_s_max
        self._began_s = self._told_s = clock.monotonic_s()
        self._rests_s = 0.0
        self.events = self._done = 0
        self._stage, self._total = "reading", 0

    @property
    def took_s(self) -> float:
        """How long it takes by now, in seconds."""
        return self._clock.monotonic_s() - self._began_s

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage of `total` parts, and say so."""
        self._stage, self._total, self._done = stage, total, 0
        self._began_stage_s = self._clock.monotonic_s()
        self._say(self._began_stage_s)

    async def passed(self, parts: int, events: int = 0) -> None:
        """Note what was done, say it now and then, and wait if it was too fast."""
        self._done += parts
        self.events += events
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= TELL_S or self._done >= self._total:
            self._say(now_s)
        if self._most is None or not events:
            return
        # guard: rebuild-throttled
        self._rests_s = max(self._rests_s, now_s) + events / self._most
        if self._rests_s > now_s:
            await self._clock.sleep(self._rests_s - now_s)

    def _say(self, now_s: float) -> None:
        self._told_s = now_s
        took_s = now_s - self._began_stage_s
        left_s = took_s / self._done * (self._total - self._done) if self._done else None
        self._tell(
            RebuildProgress(
                stage=self._stage,
                done=min(self._done, self._total),
                total=self._total,
                events=self.events,
                events_per_s=self.events / self.took_s if self.took_s > 0 else 0.0,
                left_s=None if left_s is None else max(0.0, left_s),
            )
        )
