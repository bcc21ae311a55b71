"""What the servers of a world hold, and whether anything is left to do there."""

from __future__ import annotations

from collections.abc import Sequence

from engine import lanes
from engine.actor import Actor
from engine.runtime import ticker
from streams import codec
from streams.log import Recorded
from streams.memory.stream import Message
from streams.parsing import COMMIT_HEADER
from streams.subjects import Stream
from streams.timers import Due
from tests.simulation.wakeful import ORDERS
from tests.simulation.wire import Servers, done


def is_left(servers: Servers) -> bool:
    """Return whether anybody has something to do, or will have before long."""
    waits = servers.unfinished or held(servers) or unanswered(servers)
    return bool(waits or pending(servers))


def held(servers: Servers) -> list[str]:
    """Return the claims that are held, but for those of dispatchers, who keep theirs."""
    bucket = servers.ports.leases._bucket
    found = [key for key, stored in bucket.items() if stored.change.state == "claimed"]
    return [key for key in found if not key.startswith("lane.")]


def unanswered(servers: Servers) -> int:
    """Return how many messages wait for someone."""
    ports = servers.ports
    durables = [
        *ports.world._durables.values(),
        *ports.inbox._durables.values(),
        *ports.timers._durables.values(),
    ]
    return sum(durable.backlog for durable in durables)


def pending(servers: Servers) -> list[str]:
    """Return the timers that have not fired, but for those of schedules, which go on."""
    timers = servers.ports.timers
    timers.fire()
    return [subject for subject in timers._armed if f".{ticker.PURPOSE}." not in subject]


def has_dispatched(servers: Servers, actor: Actor) -> bool:
    """Return whether all events of an actor whose episodes take turns have come to something."""
    ports = servers.ports
    events = ports.log._streams[ports.stack.stream(Stream.EVENTS)].past(0)
    newest = {ports.stack.event_name_of(event.subject): event.seq for event in events}
    cursors = lanes.fold(done(ports.log.read(ports.stack.lane(actor.id)))).cursors
    return all(cursors.get(name, 0) >= newest.get(name, 0) for name in actor.event_names())


def stored(servers: Servers, stream: Stream) -> list[Recorded]:
    """Return what the partitions of `stream` hold, in the order in which it was stored."""
    stack, streams = servers.ports.stack, servers.ports.log._streams
    names = [stack.stream(stream, each) for each in stack.partitions_of(stream)]
    places = {one: place for place, one in enumerate(servers.stored_at_s)}
    messages = (message for name in names for message in streams[name].past(0))
    return [
        codec.decode_commit(
            m.data, subject=m.subject, seq=m.seq, commit_id=m.headers[COMMIT_HEADER]
        )
        for m in sorted(messages, key=lambda m: places[m.subject, m.seq])
    ]


def fed(servers: Servers) -> Sequence[Message]:
    """Return what the stream that is not ours holds."""
    stream = servers.ports.world._foreign.get(ORDERS)
    return () if stream is None else stream.past(0)


def due(servers: Servers) -> list[Due]:
    """Return what fired or was sent into the queues of due timers."""
    ports = servers.ports
    names = [
        ports.stack.stream(Stream.WORK, each) for each in ports.stack.partitions_of(Stream.WORK)
    ]
    messages = (message for name in names for message in ports.log._streams[name].past(0))
    found = [ports.timers._parse(each) for each in messages if each.subject.split(".")[1] == "due"]
    return [each for each in found if isinstance(each, Due)]
