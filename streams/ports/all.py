"""All ports of one stack, as one value to hand around."""

from __future__ import annotations

from dataclasses import dataclass

from streams.ports.bucket import Bucket
from streams.ports.commands import CommandQueue
from streams.ports.deltas import Deltas
from streams.ports.domain_events import DomainEvents
from streams.ports.leases import Leases
from streams.ports.log import EventLog
from streams.ports.objects import ObjectStore
from streams.ports.refusals import Refusals
from streams.ports.states import StreamStates
from streams.ports.timers import Timers
from streams.subjects import Stack


@dataclass(frozen=True, kw_only=True)
class Ports:
    """What an engine node or a projector needs of the log."""

    stack: Stack
    """With the servers' number of partitions."""
    log: EventLog
    commands: CommandQueue
    leases: Leases
    domain_events: DomainEvents
    registry: Bucket
    """Small settings that every node watches."""
    gates: Bucket
    """The gates' memory: cooldowns, circuit breakers, live nodes."""
    timers: Timers
    objects: ObjectStore
    """What no message can hold: large results of tools."""
    refusals: Refusals
    """Why events did not fire, for people."""
    deltas: Deltas
    """What models answer, while they do."""
    states: StreamStates
    """How the streams themselves are."""
    encrypts: bool = False
    """Whether contents of some subjects are encrypted, and stand nowhere in the open: in no log."""
