"""All ports of one stack, as one value to hand around."""

from __future__ import annotations

from dataclasses import dataclass

from streams.bucket import Bucket
from streams.inbox import Inbox
from streams.leases import Leases
from streams.log import EventLog
from streams.subjects import Stack
from streams.timers import Timers
from streams.world import World


@dataclass(frozen=True, kw_only=True)
class Ports:
    """What an engine node or a projector needs of the log."""

    stack: Stack
    """With the partitions that the servers say it has."""
    log: EventLog
    inbox: Inbox
    leases: Leases
    world: World
    registry: Bucket
    """Small settings that every node watches."""
    gates: Bucket
    """What the gates have to remember: cooldowns, circuit breakers, who is there."""
    timers: Timers
