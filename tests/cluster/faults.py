"""What goes wrong with the servers, to which of them and when: planned from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from bench.three import SERVERS

FIRST_S: Final = 2.0
"""Before the first fault."""

LASTS_S: Final = (2.0, 6.0)
"""How long one lasts, in seconds: less and more than a leader takes to be replaced."""

PAUSE_S: Final = (1.0, 4.0)
"""Between two faults: mostly too short for the replica to have caught up."""

SMALL: Final = SERVERS - 1
"""The server with the small disk."""


class ServerFault(StrEnum):
    """What can go wrong with servers."""

    KILLED = "kill server"
    """It is gone in the middle of whatever it did, and started again later."""
    FROZEN = "freeze server"
    """It stands still, with all its connections open."""
    SPLIT = "split server"
    """It loses the others, and keeps its clients: it may believe that it leads."""
    SILENT = "silence server"
    """As before, but nothing tells that the connections are lost."""
    CUT = "cut server"
    """It loses the others and its clients."""
    FULL = "fill disk"
    """Its disk is full; once there is room again, it is restarted."""
    TWO = "kill two servers"
    """It and another one are killed at once: there is no majority."""


class PlannedFault(NamedTuple):
    """One fault."""

    after_s: float
    """Since the end of the one before."""
    fault: ServerFault
    server: int
    other: int
    """The second one, of `TWO`."""
    for_s: float


def plan_servers(
    seed: int, *, during_s: float, kinds: Sequence[ServerFault] = tuple(ServerFault)
) -> Sequence[PlannedFault]:
    """Return the faults of one run, in order: one at a time, and all `kinds` before one repeats."""
    return list(_faults(random.Random(seed), during_s, kinds))


def _faults(
    chance: random.Random, during_s: float, kinds: Sequence[ServerFault]
) -> Iterator[PlannedFault]:
    at_s, left = 0.0, list[ServerFault]()
    while at_s < during_s:
        left = left or chance.sample(kinds, len(kinds))
        fault = left.pop()
        server = SMALL if fault is ServerFault.FULL else chance.randrange(SERVERS)
        other = (server + chance.randrange(1, SERVERS)) % SERVERS
        after_s, for_s = chance.uniform(*PAUSE_S) if at_s else FIRST_S, chance.uniform(*LASTS_S)
        yield PlannedFault(after_s, fault, server, other, for_s)
        at_s += after_s + for_s
