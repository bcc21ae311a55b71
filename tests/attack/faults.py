"""What goes wrong, at which message of which story: planned from a seed, evenly over everything."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
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
    """One fault, at one of the messages about one episode."""

    story: str
    point: str = ""
    """Such as `episode.3`; empty: nothing goes wrong."""
    fault: Fault | None = None

    def __str__(self) -> str:
        """Return what repeats it."""
        if self.fault is None:
            return f"make attack STORY={self.story}"
        return f"make attack STORY={self.story} POINT={self.point} FAULT={self.fault}"


def cases(points: Mapping[str, Sequence[str]], seed: int) -> Iterator[Case]:
    """Yield every fault at every point of every story: those that come first are spread evenly.

    `points` has those of each story, in order.
    """
    chance = random.Random(seed)
    kinds = [(story, fault) for story in points for fault in Fault]
    orders = {kind: _spread(points[kind[0]], chance.random()) for kind in kinds}
    for turn in range(max(map(len, points.values()), default=0)):
        chance.shuffle(kinds)
        for story, fault in kinds:
            if turn < len(points[story]):
                yield Case(story, orders[story, fault][turn], fault)


def _spread(points: Sequence[str], begin: float) -> list[str]:
    """Return `points` so that the first few are far apart."""
    count = len(points)
    aimed = (points[int((begin + _STRIDE * n) % 1.0 * count)] for n in range(4 * count))
    return list(dict.fromkeys([*aimed, *points]))
