"""What the servers of a world hold, and whether anything is left to do there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from streams.layout import Stream
from streams.model.commands import Command, WorkflowCommand
from streams.ports.log import Recorded
from streams.ports.timers import Due
from streams.wire import codec
from streams.wire.codec import decode_command, decode_workflow_command
from streams.wire.messages import COMMIT_HEADER, StreamMessage
from tests.simulation.time import EPOCH
from tests.simulation.wakeful import ORDERS
from tests.simulation.wire import Servers
from vigil.testing.idle import pending, what_is_left


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One command that was sent."""

    command: Command | WorkflowCommand
    at_s: float
    """When it was stored."""


def is_left(servers: Servers) -> bool:
    """Return whether anybody has something to do, or will have before long."""
    return bool(servers.unfinished or what_is_left(servers.ports) or pending(servers.ports))


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
    messages = (each for each in _held(servers, Stream.WORK) if ".inbox." in each.subject)
    return [
        Asked(command=decode(each.data), at_s=at_s(each))
        for each in messages
        for kind, decode in _DECODED.items()
        if kind in each.subject
    ]


_DECODED: Final[Mapping[str, Callable[[bytes], Command | WorkflowCommand]]] = {
    ".episode.": decode_command,
    ".attend.": decode_command,
    ".workflow.": decode_workflow_command,
}
"""What stands in the subject of an inbox → how its commands are read."""


def _held(servers: Servers, stream: Stream) -> list[StreamMessage]:
    """Return the messages of all partitions of `stream`, one after the other."""
    stack, streams = servers.ports.stack, servers.ports.log._streams
    names = [stack.stream(stream, each) for each in stack.partitions_of(stream)]
    return [message for name in names for message in streams[name].past(0)]


def at_s(message: StreamMessage) -> float:
    """Return when a message was stored, in simulated seconds."""
    return seconds(message.at)


def seconds(at: datetime) -> float:
    """Return a time in simulated seconds."""
    return (at - EPOCH).total_seconds()
