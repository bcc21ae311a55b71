"""Limits how fast one node delivers through one adapter: so many at a time, and so many a second.

Each node counts for itself: with a limit of five a second, three nodes may send fifteen.

An output that cannot be delivered soon is postponed by `Throttle.send_away_s` to a time of its own,
each one step of the rate after the one before. This is no reservation, since its episode may come
back to another node, or not at all: any output that comes takes the next slot, but a first-time
output waits behind the postponed ones. A time stops counting once its output is settled, or if it
passes unused. Without a rate nobody knows when a slot will be free: then postponed outputs also
wait in `WaitQueue` and are called in order, each with `COME_S` to come; if a call is lost, they
come at their time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from engine.runtime.slots import Slots
from streams.clock import Clock

WAITING_MAX: Final = 10_000
"""Outputs that wait at a time. Further ones are not called and come back at their own time."""

COME_S: Final = 2.0
"""Longest time for a called episode to come, in seconds: a timer fires within 0.25 s, and two logs
are read on the way.
"""


PLACE_S: Final = 10.0
"""Longest wait for a slot of the limit, in seconds, before an output is postponed: meanwhile its
episode occupies a slot of the node."""

AWAY_S: Final = 10.0
"""Shortest postponement, in seconds."""

AWAY_S_MAX: Final = 3_600.0
"""Longest postponement: by then a route may have another rate, or other nodes may have room."""

LATE_S: Final = 2.0
"""How late a postponed output may come, in seconds, before others get its slot: timers are late by
moments."""

AWAY_MAX: Final = 10_000
"""Outputs whose times are remembered. A forgotten one that comes back too early may get another
time, and first-time outputs may overtake it."""


class WaitingEpisode(NamedTuple):
    """The episode to call."""

    actor_id: str
    episode_id: str


class WaitQueue:
    """Episodes that wait for a slot, by the key of their output."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[WaitingEpisode, float]] = {}
        """Key → whom to call, and until when; in order of arrival."""
        self._expected_s: dict[str, float] = {}
        """Key → until when the called episode is expected."""

    @property
    def is_expecting(self) -> bool:
        """Whether a called episode has not come yet."""
        return bool(self._expected_s)

    def join(self, key: str, who: WaitingEpisode, *, until_s: float) -> None:
        """Add `who` until `until_s`. An output that came back in vain keeps its position."""
        self._expected_s.pop(key, None)  # guard: vain-comer-keeps-turn
        if key in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[key] = who, until_s

    def leave(self, key: str) -> None:
        """Remove an output."""
        self._waiting.pop(key, None)
        self._expected_s.pop(key, None)

    def expected(self, *, at_s: float, but: str = "") -> int:
        """Return how many were called and may still come, without the key `but`."""
        others = (until_s for key, until_s in self._expected_s.items() if key != but)
        return sum(until_s >= at_s for until_s in others)  # guard: uncome-place-not-kept

    def call(self, places: int, *, at_s: float) -> Sequence[WaitingEpisode]:
        """Return whom to call, in order, so that each of so many slots is taken."""
        # guard: no-show-gives-turn
        for key in [each for each, until_s in self._expected_s.items() if until_s < at_s]:
            self.leave(key)
        called: list[WaitingEpisode] = []
        gone: list[str] = []
        for key, (who, until_s) in self._waiting.items():
            if len(self._expected_s) >= places:  # guard: called-place-calls-no-other
                break
            if until_s < at_s:  # guard: late-comer-not-called
                gone.append(key)
            elif key not in self._expected_s:
                self._expected_s[key] = at_s + COME_S
                called.append(who)
        for key in gone:
            self.leave(key)
        return list(dict.fromkeys(called))


class Throttle:
    """Slots for deliveries; postponed outputs come first."""

    def __init__(self, clock: Clock, *, max_concurrent: int, rate_per_s: float | None) -> None:
        """Start with every slot free; `rate_per_s` None is no limit."""
        self._clock, self._slots = clock, Slots(max_concurrent)
        self._apart_s = 1 / rate_per_s if rate_per_s else 0.0
        self._next_s = clock.monotonic_s()
        """When the next delivery may begin."""
        self._back_s: dict[str, float] = {}
        """Key → when it is to come back, in that order."""
        self._line = WaitQueue()
        self._changed = asyncio.Event()
        """Set when there may be an episode to call."""

    @property
    def wait_s(self) -> float:
        """How long until the rate allows a delivery, in seconds."""
        return max(0.0, self._next_s - self._clock.monotonic_s())

    @property
    def queue_s(self) -> float:
        """How long until the last postponed output is due, in seconds."""
        return max(0.0, self._last_s() - self._clock.monotonic_s())

    def is_open(self, key: str, *, within_s: float) -> bool:
        """Return whether an output could be delivered in time, beside the called episodes."""
        return self.wait_s <= within_s and self._spare(key) > 0

    def is_open_to_new(self, *, within_s: float = 0.0) -> bool:
        """Return whether a first-time output need not wait longer behind the postponed ones."""
        # A free slot is for it if a postponed output has not come, or if the next one is due late
        # enough to find another. Without a rate, nobody knows when the others get theirs.
        is_free = self._is_missing() or self._is_next_far()  # guard: absent-ones-place-free
        soon_s = within_s if self._apart_s else 0.0  # guard: newcomer-stands-behind
        return self.queue_s <= soon_s or (self.wait_s <= 0 and is_free)

    def send_away_s(self, key: str) -> float:
        """Return for how many seconds an output is postponed: to the same time if it is early."""
        now_s = self._clock.monotonic_s()
        if self._back_s.get(key, now_s) > now_s:  # guard: early-return-same-time
            return self._back_s[key] - now_s
        if self.queue_s <= 0:
            self._back_s.clear()  # guard: old-places-overtake-nobody
        self._back_s.pop(key, None)
        # guard: rate-times-apart
        back_s = max(self._last_s(), self._next_s, now_s + AWAY_S) + self._apart_s
        if len(self._back_s) >= AWAY_MAX:
            del self._back_s[next(iter(self._back_s))]
        self._back_s[key] = min(back_s, now_s + AWAY_S_MAX)
        return self._back_s[key] - now_s

    def line_up(self, key: str, who: WaitingEpisode) -> None:
        """Call `who` when there is a slot, if the output of this key was postponed."""
        # Only once no node has the episode: a call before that would find it taken.
        if key in self._back_s and not self._apart_s:  # guard: rated-not-called-early
            self._line.join(key, who, until_s=self._back_s[key] + LATE_S)
            self._changed.set()

    async def wait_called(self) -> Sequence[WaitingEpisode]:
        """Wait for slots; return the episodes to call, in order, and keep theirs for `COME_S`."""
        while True:
            self._changed.clear()
            called = self._line.call(self._slots.free, at_s=self._clock.monotonic_s())
            if called:
                return called
            with suppress(TimeoutError):
                async with self._clock.timeout(COME_S if self._line.is_expecting else None):
                    await self._changed.wait()

    def forget(self, key: str) -> None:
        """Forget the output of this key: it is settled."""
        self._back_s.pop(key, None)
        self._line.leave(key)  # guard: settled-leaves-line
        self._changed.set()  # guard: settled-call-passes-on

    def try_enter(self, key: str) -> bool:
        """Take a slot for a first-time delivery that begins now; return whether there was one."""
        # guard: sent-away-not-overtaken
        if self.wait_s > 0 or not self.is_open_to_new() or not self._slots.try_take():
            return False
        self._reserve_s(key)
        return True

    async def enter(self, key: str, *, within_s: float, unless: asyncio.Event) -> bool:
        """Wait until a delivery may begin, or `unless` is set; return whether it may."""
        until_s = self._clock.monotonic_s() + within_s
        if not await self._slots.take(within_s=within_s, unless=unless):
            return False
        if self._clock.monotonic_s() + self.wait_s > until_s:
            self.leave()
            return False
        try:
            await self._clock.sleep(self._reserve_s(key))
        except asyncio.CancelledError:
            self.leave()
            raise
        return True

    def leave(self) -> None:
        """Give the slot back: the delivery is over."""
        self._slots.give_back()
        self._changed.set()  # guard: free-place-wakes-waiter

    def _spare(self, key: str = "") -> int:
        expected = self._line.expected(at_s=self._clock.monotonic_s(), but=key)
        return self._slots.free - expected  # guard: called-place-kept

    def _last_s(self) -> float:
        return next(reversed(self._back_s.values()), 0.0)

    def _first_s(self) -> float:
        return next(iter(self._back_s.values()), math.inf)

    def _is_missing(self) -> bool:
        return self._first_s() + LATE_S < self._clock.monotonic_s()

    def _is_next_far(self) -> bool:
        next_s = self._clock.monotonic_s() + self._apart_s
        return self._first_s() >= next_s and self._spare() > 1  # guard: last-place-for-sent-away

    def _reserve_s(self, key: str) -> float:
        """Take its own time, or that of one that has not come; return the wait in seconds."""
        self._line.leave(key)
        if self._back_s.pop(key, None) is None and self._is_missing():
            del self._back_s[next(iter(self._back_s))]  # guard: absent-place-for-one
        wait_s = self.wait_s
        self._next_s = self._clock.monotonic_s() + wait_s + self._apart_s
        return wait_s
