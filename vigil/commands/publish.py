"""`vigil publish`: domain events from the command line."""

from __future__ import annotations

import asyncio
import signal
import sys
from itertools import count
from typing import Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.json import JsonObject
from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EVENT_BYTES_MAX
from streams.subjects import Stack
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage, parse_event
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.listening import why_nobody_listens
from vigil.errors import Mistake

_CLOCK: Final = SystemClock()


def publish(
    ctx: typer.Context,
    *,
    name: Annotated[str, Argument(metavar="NAME", help="The event's dotted name.")],
    payload: Annotated[
        str, Argument(metavar="JSON", help="A JSON object; - reads standard input.")
    ] = "-",
    event_id: Annotated[
        str | None,
        Option("--id", help="Within two minutes, an event with the same id is kept once."),
    ] = None,
    is_lines: Annotated[
        bool, Option("--lines", help="Each line of standard input is an event.")
    ] = False,
) -> None:
    """Publish a domain event."""
    config = options.config(ctx)
    id_ = event_id or f"{config.node}-{_CLOCK.now().isoformat()}"
    if is_lines:
        if payload != "-":
            raise Mistake("--lines reads standard input; leave the JSON out, or give -")
        # A read of a terminal or a pipe cannot be cancelled; there is nothing to put in order.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        published = with_ports(config, lambda p: _publish_lines(p, name, prefix=id_), creates=True)
        print(f"published {published:,} events")
        _warn(with_ports(config, lambda p: why_nobody_listens(p, name)))
        return
    data = sys.stdin.buffer.read(EVENT_BYTES_MAX + 1) if payload == "-" else payload.encode()
    body = checked(data, name=name, id=id_, stack=config.stack)

    async def stored(ports: Ports) -> tuple[str, str]:
        newest_seq = await ports.log.head(Stream.EVENTS)
        seq = await ports.domain_events.publish(name, body, id=id_)
        was_there = seq <= newest_seq
        said = (
            f"was there already, at sequence {seq}" if was_there else f"published, sequence {seq}"
        )
        return said, await why_nobody_listens(ports, name)

    said, unheard = with_ports(config, stored, creates=True)
    print(f"{name} {id_}: {said}")
    _warn(unheard)


def _warn(problem: str) -> None:
    if problem:
        print(f"warning: {problem}", file=sys.stderr)


def checked(data: bytes, *, name: str, id: str, stack: Stack) -> JsonObject:
    """Return the payload in `data`; raise `Mistake` if no engine would accept it."""
    if len(data) > EVENT_BYTES_MAX:  # No more is read, so nobody knows how much there is.
        raise Mistake(f"{name}: too_large: over {EVENT_BYTES_MAX:,} bytes, the limit of an event")
    headers, subject = {MESSAGE_ID_HEADER: id}, stack.event(name)
    sent = StreamMessage(seq=0, subject=subject, headers=headers, data=data, at=_CLOCK.now())
    event = parse_event(sent, stack=stack, stream=stack.stream(Stream.EVENTS))
    if isinstance(event, Unreadable):
        raise Mistake(f"{name}: {event.reason}: {event.detail}")
    return event.payload


async def _publish_lines(ports: Ports, name: str, *, prefix: str) -> int:
    published = 0
    for number in count(1):
        line = await asyncio.to_thread(sys.stdin.buffer.readline, EVENT_BYTES_MAX + 1)
        if not line:
            break
        if line.strip():
            id_ = f"{prefix}-{number}"
            try:
                body = checked(line.rstrip(b"\r\n"), name=name, id=id_, stack=ports.stack)
            except Mistake as error:
                raise Mistake(
                    f"line {number}: {error}; the lines before it are published"
                ) from error
            await ports.domain_events.publish(name, body, id=id_)
            published += 1
    return published
