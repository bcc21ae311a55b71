"""Whether anything is left to do in a stack in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Final, TypeVar

from engine.reactor.position import published
from engine.reactor.reactor import followed
from engine.triggers import schedule
from engine.waits.signals import QUEUE
from streams.keys import NODE_CLAIMS
from streams.memory import MemoryPorts
from streams.memory.fake_leases import STRANGER

T = TypeVar("T")

KEPT: Final = ("lane.", f"{NODE_CLAIMS}.")
"""Begin the keys of the claims of nodes, and of those of them who order episodes."""

GOES_ON: Final = (f".{schedule.PURPOSE}.", f".{QUEUE}.")
"""Parts of the subjects of timers that need no end: of schedules, and of signals that nobody waits
for yet."""


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` on a memory port returns: all of it happens when it is called."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a memory port waited")


def what_is_left(ports: MemoryPorts) -> str:
    """Return what nodes still have to do, for people; empty: nothing until a timer is due."""
    counts = {
        "commits not followed up": unfollowed(ports),
        "claims held": len(held(ports)),
        "streams with episodes that run": covering(ports),
        "messages not answered": unanswered(ports),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def unfollowed(ports: MemoryPorts) -> int:
    """Return how many commits the reactors have not noted as followed."""
    left = 0
    for stream, partition in followed(ports.stack):
        part = ports.stack.part(stream, partition)
        head = done(ports.log.head(stream, partition=partition))
        left += head - done(published(ports, part)).seq
    return left


def held(ports: MemoryPorts) -> list[str]:
    """Return the claims that nodes hold, but for those that they keep while they are up."""
    claimed = ports.leases.claimed().items()
    return [key for key, who in claimed if who != STRANGER and not key.startswith(KEPT)]


def covering(ports: MemoryPorts) -> int:
    """Return how many streams have episodes that the lease of their node stands for."""
    parts = [ports.stack.part(stream, partition) for stream, partition in followed(ports.stack)]
    return sum(done(published(ports, part)).covered_from > 0 for part in parts)


def unanswered(ports: MemoryPorts) -> int:
    """Return how many messages nodes have not answered.

    A signal that nobody waits for is answered: it has a timer.
    """
    ports_with_queues = (ports.domain_events, ports.commands, ports.timers)
    # guard: busy-until-dead-signals-answered
    return sum(each.backlog for port in ports_with_queues for _, each in port.durables())


def next_due_at(ports: MemoryPorts) -> datetime | None:
    """Return when the next timer fires; None: there is none."""
    ports.timers.fire()
    return min((at for _, at in ports.timers.armed()), default=None)


def pending(ports: MemoryPorts) -> list[str]:
    """Return the subjects of the timers that have not fired, but for those that go on."""
    ports.timers.fire()
    subjects = (subject for subject, _ in ports.timers.armed())
    return [subject for subject in subjects if not any(part in subject for part in GOES_ON)]
