"""The log in dicts: every port in one process, on nothing but a clock.

For users' unit tests and for simulated clusters. The ports behave as on a server (one contract
suite runs on both), so several nodes may share one result of `memory_ports`. Only `receive` waits;
everything else is done when it is called, so the same calls in the same order give the same log.
Nothing is random, and nothing is forgotten except old message ids and old markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streams.clock import Clock
from streams.layout import Stream
from streams.memory.bell import Bell
from streams.memory.bucket import MemoryBucket
from streams.memory.commands import MemoryCommandQueue
from streams.memory.deltas import MemoryDeltas
from streams.memory.domain_events import MemoryDomainEvents
from streams.memory.leases import MemoryLeases
from streams.memory.log import MemoryLog
from streams.memory.objects import MemoryObjects
from streams.memory.refusals import MemoryRefusals
from streams.memory.states import MemoryStates
from streams.memory.stream import MemoryStream
from streams.memory.timers import MemoryTimers
from streams.ports.all import Ports
from streams.subjects import Stack

__all__ = ["LEASE_TTL_S", "MemoryPorts", "memory_ports"]

LEASE_TTL_S: Final = 30.0
"""How long a lease lasts after its last renewal, in seconds, by default."""

_DEFAULT_STACK: Final = Stack()


@dataclass(frozen=True, kw_only=True)
class MemoryPorts(Ports):
    """`Ports`, and what only memory can do: each `publish_raw`."""

    log: MemoryLog
    commands: MemoryCommandQueue
    leases: MemoryLeases
    domain_events: MemoryDomainEvents
    registry: MemoryBucket
    gates: MemoryBucket
    timers: MemoryTimers
    objects: MemoryObjects
    refusals: MemoryRefusals
    deltas: MemoryDeltas
    states: MemoryStates


def memory_ports(
    *,
    stack: Stack = _DEFAULT_STACK,
    clock: Clock,
    lease_ttl_s: float = LEASE_TTL_S,
    lapse_late_s: float = 0.0,
) -> MemoryPorts:
    """Return an empty stack, for any number of nodes in this process.

    `lapse_late_s`: after the end of a lease, until the server's own timer finds it, in seconds.
    """
    streams = {each.name: each for stream in Stream for each in _partitions(stack, stream, clock)}
    return MemoryPorts(
        stack=stack,
        log=MemoryLog(streams, stack=stack),
        commands=MemoryCommandQueue(streams, stack=stack),
        leases=MemoryLeases(clock, ttl_s=lease_ttl_s, late_s=lapse_late_s),
        domain_events=MemoryDomainEvents(streams[stack.stream(Stream.EVENTS)], stack=stack),
        registry=MemoryBucket(clock),
        gates=MemoryBucket(clock),
        timers=MemoryTimers(streams, stack=stack),
        objects=MemoryObjects(clock),
        refusals=MemoryRefusals(clock, stack=stack),
        deltas=MemoryDeltas(clock),
        states=MemoryStates(streams, clock, stack=stack),
    )


def _partitions(stack: Stack, stream: Stream, clock: Clock) -> Iterator[MemoryStream]:
    """Yield every partition of `stream`; they share a bell, since a source may wait for all."""
    bell = Bell(clock)
    for partition in stack.partitions_of(stream):
        yield MemoryStream(stack.stream(stream, partition), clock=clock, bell=bell)
