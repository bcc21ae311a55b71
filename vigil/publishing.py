"""Publishing domain events from the command line."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from itertools import count

from streams.clock import SystemClock
from streams.json import JsonObject
from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EVENT_BYTES_MAX
from streams.subjects import Stack
from streams.wire.messages import MESSAGE_ID_HEADER, parse_event
from vigil.errors import Mistake
from vigil.settings import Reading
from vigil.work import connected

_CLOCK = SystemClock()


@dataclass(frozen=True)
class Published:
    """One event that is stored."""

    id: str
    seq: int
    is_duplicate: bool
    """An event with this id was there before; `seq` is that one's."""


def publish_one(reading: Reading, name: str, text: str, *, id: str | None) -> Published:
    """Publish the JSON object that `text` says, or standard input if it is `-`.

    Raises:
        Mistake: no engine would accept it; says why.
        BadName: `name` cannot name an event.
        Unavailable, Incompatible: the server cannot store it.
    """
    data = sys.stdin.buffer.read(EVENT_BYTES_MAX + 1) if text == "-" else text.encode()
    event_id = id or _fresh_id(reading.node)
    payload = checked(data, name=name, id=event_id, stack=reading.stack)
    return asyncio.run(_publish_one(reading, name, payload, id=event_id))


def publish_lines(reading: Reading, name: str, *, id: str | None) -> int:
    """Publish each line of standard input as one event, in order; return how many.

    Args:
        reading: the settings.
        name: what every event is called.
        id: makes ids, `<id>-<line>`, so that publishing the same file again changes nothing.

    Raises:
        Mistake: a line that no engine would accept; those before it are published.
        BadName: `name` cannot name an event.
        Unavailable, Incompatible: the server cannot store it.
    """
    # A read of a terminal or a pipe cannot be cancelled; there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return asyncio.run(_publish_lines(reading, name, prefix=id or _fresh_id(reading.node)))


def checked(data: bytes, *, name: str, id: str, stack: Stack) -> JsonObject:
    """Return the payload that `data` says, if an engine would accept it.

    Raises:
        Mistake: it would not: bad JSON, no object, too large, or a bad id.
        BadName: `name` cannot name an event.
    """
    event = parse_event(
        data,
        {MESSAGE_ID_HEADER: id},
        stack=stack,
        stream=stack.stream(Stream.EVENTS),
        subject=stack.event(name),
        seq=0,
        at=_CLOCK.now(),
    )
    if isinstance(event, Unreadable):
        raise Mistake(f"{name}: {event.reason}: {event.detail}")
    return event.payload


async def _publish_one(reading: Reading, name: str, payload: JsonObject, *, id: str) -> Published:
    async with connected(reading) as ports:
        return await _store(ports, name, payload, id=id)


async def _publish_lines(reading: Reading, name: str, *, prefix: str) -> int:
    published = 0
    async with connected(reading) as ports:
        for number in count(1):
            line = await asyncio.to_thread(sys.stdin.buffer.readline, EVENT_BYTES_MAX + 1)
            if not line:
                return published
            if line.strip():
                await _publish_line(ports, name, line, number=number, prefix=prefix)
                published += 1
    raise AssertionError


async def _publish_line(ports: Ports, name: str, line: bytes, *, number: int, prefix: str) -> None:
    event_id = f"{prefix}-{number}"
    try:
        payload = checked(line.rstrip(b"\r\n"), name=name, id=event_id, stack=ports.stack)
    except Mistake as error:
        raise Mistake(f"line {number}: {error}; the lines before it are published") from error
    await ports.world.publish(name, payload, id=event_id)


async def _store(ports: Ports, name: str, payload: JsonObject, *, id: str) -> Published:
    newest_seq = await ports.log.head(Stream.EVENTS)
    seq = await ports.world.publish(name, payload, id=id)
    return Published(id=id, seq=seq, is_duplicate=seq <= newest_seq)


def _fresh_id(node: str) -> str:
    """Return an id that no other event has: this process, now."""
    return f"{node}-{_CLOCK.now().isoformat()}"
