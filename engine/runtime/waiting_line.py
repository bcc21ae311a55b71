"""Who waits for a place and can be called to it, in the order in which they came.

Whoever is called has a moment to come. If they have not come by then, another node has them, or
nobody wants anything of them any more: they wait no longer, and the next one is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

WAITING_MAX: Final = 10_000
"""Outputs that wait at a time. Nobody calls those that come then; they come back by themselves."""

COME_S: Final = 2.0
"""Longest that whoever is called may take to come, in seconds. They are called by a timer, which
fires within 0.25 s, and read two logs on the way."""


class Waiting(NamedTuple):
    """The episode that is called when its output waits."""

    actor_id: str
    episode_id: str


class WaitingLine:
    """Those who wait, each by the key of an output."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._waiting: dict[str, tuple[Waiting, float]] = {}
        """Key → whom to call, and until when. In the order in which they came."""
        self._expected_s: dict[str, float] = {}
        """Key → until when whoever was called is expected."""

    @property
    def is_expecting(self) -> bool:
        """Whether anybody was called and has not come."""
        return bool(self._expected_s)

    def join(self, key: str, who: Waiting, *, until_s: float) -> None:
        """Have `who` wait. Who has waited, and has come in vain, keeps their turn.

        Args:
            key: the output's.
            who: its episode.
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

    def call(self, places: int, *, at_s: float) -> Sequence[Waiting]:
        """Return whom to call so that each of so many places has somebody who comes, in order."""
        for key in [each for each, until_s in self._expected_s.items() if until_s < at_s]:
            self.leave(key)
        called: list[Waiting] = []
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
