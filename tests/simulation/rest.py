"""What the servers of a world hold, and whether anything is left to do there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.reactor.position import published
from engine.reactor.reactor import followed
from engine.triggers import schedule
from engine.waits.signals import QUEUE
from streams.layout import Stream
from streams.model.commands import Command
from streams.ports.log import Recorded
from streams.ports.timers import Due
from streams.wire import codec
from streams.wire.codec import decode_command
from streams.wire.messages import COMMIT_HEADER, StreamMessage
from tests.simulation.time import EPOCH
from tests.simulation.wakeful import ORDERS
from tests.simulation.wire import Servers, done


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One command that was sent."""

    command: Command
    at_s: float
    """When it was stored."""


def is_left(servers: Servers) -> bool:
    """Return whether anybody has something to do, or will have before long."""
    waits = servers.unfinished or held(servers) or unanswered(servers)
    return bool(waits or pending(servers) or unfollowed(servers))


def unfollowed(servers: Servers) -> int:
    """Return how many commits the reactors have not noted as followed."""
    ports, left = servers.ports, 0
    for stream, partition in followed(ports.stack):
        part = ports.stack.part(stream, partition)
        head = done(ports.log.head(stream, partition=partition))
        left += head - done(published(ports, part)).seq
    return left


def held(servers: Servers) -> list[str]:
    """Return the claims that are held, but for those of dispatchers, who keep theirs."""
    bucket = servers.ports.leases._bucket
    found = [key for key, stored in bucket.items() if stored.change.state == "claimed"]
    return [key for key in found if not key.startswith("lane.")]


def unanswered(servers: Servers) -> int:
    """Return how many messages wait for someone, but for signals that nobody waits for."""
    ports = servers.ports
    waits, looks = ports.stack.gate_durable(QUEUE), ports.stack.due_durable(QUEUE)
    durables = [
        *(each for name, each in ports.domain_events._durables.items() if name != waits),
        *ports.commands._durables.values(),
        *(each for (name, _), each in ports.timers._durables.items() if name != looks),
    ]
    return sum(durable.backlog for durable in durables)


def pending(servers: Servers) -> list[str]:
    """Return the timers that have not fired, but for those that go on.

    That is those of schedules, and of signals that nobody waits for yet.
    """
    timers = servers.ports.timers
    timers.fire()
    go_on = f".{schedule.PURPOSE}.", f".{QUEUE}."
    return [subject for subject in timers._armed if not any(each in subject for each in go_on)]


def stored(servers: Servers, *streams: Stream) -> list[Recorded]:
    """Return what the partitions of `streams` hold, in the order in which it was stored."""
    places = {one: place for place, one in enumerate(servers.stored_at_s)}
    messages = [message for stream in streams for message in _held(servers, stream)]
    return [
        codec.decode_commit(
            m.data, subject=m.subject, seq=m.seq, commit_id=m.headers[COMMIT_HEADER]
        )
        for m in sorted(messages, key=lambda m: places[m.subject, m.seq])
    ]


def fed(servers: Servers) -> Sequence[StreamMessage]:
    """Return what the stream that is not ours holds."""
    stream = servers.ports.domain_events._foreign.get(ORDERS)
    return () if stream is None else stream.past(0)


def due(servers: Servers) -> list[Due]:
    """Return what fired or was sent into the queues of due timers."""
    messages = (each for each in _held(servers, Stream.WORK) if each.subject.split(".")[1] == "due")
    found = [servers.ports.timers._parse(each) for each in messages]
    return [each for each in found if isinstance(each, Due)]


def asked(servers: Servers) -> list[Asked]:
    """Return the commands that were ever sent, in order in each partition."""
    kinds = {".episode.", ".attend."}
    commands = (each for each in _held(servers, Stream.WORK) if ".inbox." in each.subject)
    messages = (each for each in commands if any(kind in each.subject for kind in kinds))
    return [Asked(command=decode_command(each.data), at_s=at_s(each)) for each in messages]


def _held(servers: Servers, stream: Stream) -> list[StreamMessage]:
    """Return the messages of all partitions of `stream`, one after the other."""
    stack, streams = servers.ports.stack, servers.ports.log._streams
    names = [stack.stream(stream, each) for each in stack.partitions_of(stream)]
    return [message for name in names for message in streams[name].past(0)]


def at_s(message: StreamMessage) -> float:
    """Return when a message was stored, in simulated seconds."""
    return (message.at - EPOCH).total_seconds()
