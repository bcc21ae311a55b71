"""What goes wrong, to whom and when: planned from a seed, so that a run can be had again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

EVERY_S: Final = 2.0
"""Between two faults."""

DOWN_S: Final = 1.0
"""How long a killed node stays down before it is started again."""

START_S: Final = 3.0
"""How long a node takes until it works again, in the plan's view."""

LEASES_FROZEN: Final = 1.5
"""How long a node is frozen, in leases: long enough that another one takes over."""

LEASES_CUT_MAX: Final = 1.5


class Fault(StrEnum):
    """What can go wrong."""

    KILL = "kill"
    """A node is gone in the middle of whatever it did, and started again later."""
    FREEZE = "freeze"
    """A node stands still past its leases, and wakes up believing that it still has them."""
    CUT = "cut"
    """A node's connection loses answers, breaks, and cannot be made for a while."""
    RESTART = "restart"
    """The NATS server is killed and started again."""


class Planned(NamedTuple):
    """One fault."""

    at_s: float
    fault: Fault
    node: int
    """Index; the server has none, and this means nothing."""
    for_s: float
    """How long it lasts."""


def plan(seed: int, *, nodes: int, lease_s: float, during_s: float) -> Sequence[Planned]:
    """Return the faults of one run, in order: one every `EVERY_S`, never to a node in trouble."""
    return list(_faults(random.Random(seed), nodes=nodes, lease_s=lease_s, during_s=during_s))


def _faults(
    chance: random.Random, *, nodes: int, lease_s: float, during_s: float
) -> Iterator[Planned]:
    times = [EVERY_S * number for number in range(1, int(during_s / EVERY_S) + 1)]
    restart_at_s = chance.choice(times)
    busy_until_s = [0.0] * nodes
    for at_s in times:
        free = [node for node in range(nodes) if busy_until_s[node] <= at_s]
        if at_s == restart_at_s:
            yield Planned(at_s, Fault.RESTART, node=0, for_s=0.0)
        elif free:
            node = chance.choice(free)
            fault = chance.choice([Fault.KILL, Fault.FREEZE, Fault.CUT])
            for_s, settle_s = _length(chance, fault, lease_s)
            busy_until_s[node] = at_s + for_s + settle_s
            yield Planned(at_s, fault, node, for_s)


def _length(chance: random.Random, fault: Fault, lease_s: float) -> tuple[float, float]:
    """Return how long `fault` lasts, and how long its node needs afterwards."""
    match fault:
        case Fault.KILL:
            return DOWN_S, START_S
        case Fault.FREEZE:
            return lease_s * LEASES_FROZEN, EVERY_S / 2
        case _:
            return chance.uniform(0.1, lease_s * LEASES_CUT_MAX), EVERY_S / 2
