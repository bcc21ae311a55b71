"""How fast one node delivers through one adapter: so many at a time, and so many a second.

Each node counts for itself: of a receiver that bears five a second, three nodes may ask fifteen.

Who cannot begin soon is sent away, with a time to come back at: each one a step of the rate after
the one before. It is no reservation. They may come back to another node, or not at all, so whoever
comes takes the next place that is free; only who comes for the first time waits behind the others.
Once it is settled what somebody was to come back for, their time counts no more; and if it has
passed without them, their place is free for whoever comes.

Without a rate nobody can say when a place will be free. Then those who were sent away stand in
line, too, and are called as soon as there is one; if the call is lost, they come at their time.

Who waits for a place and can be called to it, in the order in which they came.

Whoever is called has a moment to come. If they have not come by then, another node has them, or
nobody wants anything of them any more: they wait no longer, and the next one is called.
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
"""Outputs that wait at a time. Nobody calls those that come then; they come back by themselves."""

COME_S: Final = 2.0
"""Longest that whoever is called may take to come, in seconds. They are called by a timer, which
fires within 0.25 s, and read two logs on the way."""


class WaitingEpisode(NamedTuple):
    """The episode that is called when its output waits."""

    actor_id: str
    episode_id: str


class WaitQueue:
    """Those who wait, each by the key of an output."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._waiting: dict[str, tuple[WaitingEpisode, float]] = {}
        """Key → whom to call, and until when. In the order in which they came."""
        self._expected_s: dict[str, float] = {}
        """Key → until when whoever was called is expected."""

    @property
    def is_expecting(self) -> bool:
        """Whether anybody was called and has not come."""
        return bool(self._expected_s)

    def join(self, key: str, who: WaitingEpisode, *, until_s: float) -> None:
        """Have `who` wait. Who has waited, and has come in vain, keeps their turn.

        Args:
            until_s: when it waits no longer: it should have come back by itself before.
        """
        self._expected_s.pop(key, None)
        if key in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[key] = who, until_s

    def leave(self, key: str) -> None:
        """Have this one wait no longer."""
        self._waiting.pop(key, None)
        self._expected_s.pop(key, None)

    def expected(self, *, at_s: float, but: str = "") -> int:
        """Return how many were called and may still come, without the one of the key `but`."""
        others = (until_s for key, until_s in self._expected_s.items() if key != but)
        return sum(until_s >= at_s for until_s in others)

    def call(self, places: int, *, at_s: float) -> Sequence[WaitingEpisode]:
        """Return whom to call so that each of so many places has somebody who comes, in order."""
        for key in [each for each, until_s in self._expected_s.items() if until_s < at_s]:
            self.leave(key)
        called: list[WaitingEpisode] = []
        gone: list[str] = []
        for key, (who, until_s) in self._waiting.items():
            if len(self._expected_s) >= places:
                break
            if until_s < at_s:
                gone.append(key)
            elif key not in self._expected_s:
                self._expected_s[key] = at_s + COME_S
                called.append(who)
        for key in gone:
            self.leave(key)
        return list(dict.fromkeys(called))


PLACE_S: Final = 10.0
"""Longest wait for a place, in seconds, before an output is left for later: an episode that waits
so has a slot that others could use."""

AWAY_S: Final = 10.0
"""Shortest time that somebody is sent away for, in seconds."""

AWAY_S_MAX: Final = 3_600.0
"""Longest such time: after that a route may have another rate, or other nodes may have room."""

LATE_S: Final = 2.0
"""Longest after their time that whoever was sent away may come, in seconds, before their place is
free for others. They are called by a timer, which is late by moments."""

AWAY_MAX: Final = 10_000
"""Outputs whose times are remembered. Who is forgotten is told another one, if it comes back too
early, and can be overtaken by who comes first."""


class Throttle:
    """Places for deliveries. Who waits gets one first."""

    def __init__(self, clock: Clock, *, max_concurrent: int, rate_per_s: float | None) -> None:
        """Begin with every place free.

        Args:
            rate_per_s: deliveries that may begin in a second, evenly spread; None: any number.
        """
        self._clock, self._slots = clock, Slots(max_concurrent)
        self._apart_s = 1 / rate_per_s if rate_per_s else 0.0
        self._next_s = clock.monotonic_s()
        """When the next delivery may begin."""
        self._back_s: dict[str, float] = {}
        """Key → when it is to come back. In that order: nobody is given a time before another's."""
        self._line = WaitQueue()
        self._changed = asyncio.Event()
        """Set when there may be somebody to call."""

    @property
    def wait_s(self) -> float:
        """How long until a delivery may begin, in seconds, as far as the rate is concerned."""
        return max(0.0, self._next_s - self._clock.monotonic_s())

    @property
    def queue_s(self) -> float:
        """How long until the last one is to come back of those who were sent away, in seconds."""
        return max(0.0, self._last_s() - self._clock.monotonic_s())

    def is_open(self, key: str, *, within_s: float) -> bool:
        """Return whether the output of this key may seem to be delivered within so many seconds.

        A place to which others were called is theirs.
        """
        return self.wait_s <= within_s and self._spare(key) > 0

    def is_open_to_new(self, *, within_s: float = 0.0) -> bool:
        """Return whether who comes for the first time need not wait for longer behind the others.

        Those who were sent away come first. But a place that is free at this moment is for whoever
        comes if one of them has not come, or if the next of them comes late enough to find another.
        Without a rate, nobody knows how soon the others will have theirs.
        """
        is_free = self._is_missing() or self._is_next_far()
        soon_s = within_s if self._apart_s else 0.0
        return self.queue_s <= soon_s or (self.wait_s <= 0 and is_free)

    def send_away_s(self, key: str) -> float:
        """Return how long the output of this key is to stay away, in seconds.

        One that comes back too early is told the same time once more.
        """
        now_s = self._clock.monotonic_s()
        if self._back_s.get(key, now_s) > now_s:
            return self._back_s[key] - now_s
        if self.queue_s <= 0:
            self._back_s.clear()
        self._back_s.pop(key, None)
        back_s = max(self._last_s(), self._next_s, now_s + AWAY_S) + self._apart_s
        if len(self._back_s) >= AWAY_MAX:
            del self._back_s[next(iter(self._back_s))]
        self._back_s[key] = min(back_s, now_s + AWAY_S_MAX)
        return self._back_s[key] - now_s

    def line_up(self, key: str, who: WaitingEpisode) -> None:
        """Have `who` called when there is a place, if the output of this key was sent away.

        Only once nobody has the episode: who is called before that finds it taken.
        """
        if key in self._back_s and not self._apart_s:
            self._line.join(key, who, until_s=self._back_s[key] + LATE_S)
            self._changed.set()

    async def wait_called(self) -> Sequence[WaitingEpisode]:
        """Wait until there are places for some of those in line, and return whom to call, in order.

        They are expected from now on: their places are kept for them for `COME_S`.
        """
        while True:
            self._changed.clear()
            called = self._line.call(self._slots.free, at_s=self._clock.monotonic_s())
            if called:
                return called
            with suppress(TimeoutError):
                async with self._clock.timeout(COME_S if self._line.is_expecting else None):
                    await self._changed.wait()

    def forget(self, key: str) -> None:
        """Take note that the output of this key will not come back: it is settled."""
        self._back_s.pop(key, None)
        self._line.leave(key)
        self._changed.set()

    def try_enter(self, key: str) -> bool:
        """Take a place for a first delivery that begins now, and return whether there was one."""
        if self.wait_s > 0 or not self.is_open_to_new() or not self._slots.try_take():
            return False
        self._reserve_s(key)
        return True

    async def enter(self, key: str, *, within_s: float, unless: asyncio.Event) -> bool:
        """Wait until a delivery may begin; return whether it may.

        Args:
            unless: once it is set, nobody waits for a place any more.
        """
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
        """Give the place back: the delivery is over."""
        self._slots.give_back()
        self._changed.set()

    def _spare(self, key: str = "") -> int:
        """Return how many places are free to which nobody but the one of this key was called."""
        expected = self._line.expected(at_s=self._clock.monotonic_s(), but=key)
        return self._slots.free - expected

    def _last_s(self) -> float:
        """Return when the last one is to come back of those who were sent away."""
        return next(reversed(self._back_s.values()), 0.0)

    def _first_s(self) -> float:
        """Return when the first of them is to come back, or was."""
        return next(iter(self._back_s.values()), math.inf)

    def _is_missing(self) -> bool:
        """Return whether the first of those who were sent away has not come at their time."""
        return self._first_s() + LATE_S < self._clock.monotonic_s()

    def _is_next_far(self) -> bool:
        """Return whether who begins now leaves the next of them their place."""
        next_s = self._clock.monotonic_s() + self._apart_s
        return self._first_s() >= next_s and self._spare() > 1

    def _reserve_s(self, key: str) -> float:
        """Put one delivery down, and return how long it has to wait, in seconds.

        It has the place that it was sent away for, or that of somebody who has not come.
        """
        self._line.leave(key)
        if self._back_s.pop(key, None) is None and self._is_missing():
            del self._back_s[next(iter(self._back_s))]
        wait_s = self.wait_s
        self._next_s = self._clock.monotonic_s() + wait_s + self._apart_s
        return wait_s
