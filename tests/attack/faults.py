"""What goes wrong, at which message of which story: planned from a seed, evenly over everything."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

_STRIDE: Final = 0.6180339887498949
"""The golden ratio's: multiples of it are spread evenly over 0 to 1, however many they are."""


class Fault(StrEnum):
    """What can happen at a message. It leaves the node first, unless something else is said."""

    DROP = "drop"
    """The node is killed, and the message is lost."""
    PASS = "pass"
    """The node is killed: the server has the message, and nobody its answer."""
    TERM = "term"
    """The node is told to stop."""
    FREEZE = "freeze"
    """The node stands still for longer than its leases last."""
    LATE = "late"
    """The node stands still, and the message arrives when it goes on."""
    LOST = "lost"
    """The node stands still, the message is lost, and its connections break."""
    DOUBLE = "double"
    """The node is killed, and so is the next one at its first message about the episode."""

    @property
    def is_before(self) -> bool:
        """Whether the message does not leave the node in time."""
        return self in {Fault.DROP, Fault.LATE, Fault.LOST}

    @property
    def freezes(self) -> bool:
        return self in {Fault.FREEZE, Fault.LATE, Fault.LOST}


class Case(NamedTuple):
    """One fault, at the `point`-th message about one episode."""

    story: str
    point: int = 0
    """1-based; 0: nothing goes wrong."""
    fault: Fault | None = None

    def __str__(self) -> str:
        """Return what repeats it."""
        if self.fault is None:
            return f"make attack STORY={self.story}"
        return f"make attack STORY={self.story} POINT={self.point} FAULT={self.fault}"


def cases(points: Mapping[str, int], seed: int) -> Iterator[Case]:
    """Yield every fault at every point of every story: those that come first are spread evenly.

    `points` says how many messages there are about an episode of each story.
    """
    chance = random.Random(seed)
    kinds = [(story, fault) for story in points for fault in Fault]
    orders = {kind: _spread(points[kind[0]], chance.random()) for kind in kinds}
    for turn in range(max(points.values(), default=0)):
        chance.shuffle(kinds)
        for story, fault in kinds:
            if turn < points[story]:
                yield Case(story, orders[story, fault][turn], fault)


def _spread(count: int, begin: float) -> list[int]:
    """Return 1 to `count`, each once, so that the first few are far apart."""
    aimed = (1 + int((begin + _STRIDE * number) % 1.0 * count) for number in range(4 * count))
    return list(dict.fromkeys([*aimed, *range(1, count + 1)]))
