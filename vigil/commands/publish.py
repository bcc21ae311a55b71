"""`vigil publish`: domain events from the command line."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.ports.domain_events import EVENT_BYTES_MAX
from vigil import options
from vigil.asking.listening import why_of_engine
from vigil.commands.call import call
from vigil.errors import Mistake
from vigil.printing.columns import SENTENCE, Column, Listing
from vigil.printing.output import show_record, show_table

if TYPE_CHECKING:
    from vigil.asking.would import WouldVerdicts
    from vigil.client.client import Client


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
    is_dry: Annotated[
        bool,
        Option(
            "--dry-run/--no-dry-run",
            help="Only tell which expectations it would fire, and why not.",
        ),
    ] = False,
    is_json: options.IsJson = False,
    is_creating: Annotated[
        bool,
        Option("--create-stack", help="Make the stack if no node has made it yet."),
    ] = False,
) -> None:
    """Publish a domain event."""
    if is_dry and is_lines:
        raise Mistake("--dry-run is about one event; leave --lines out")
    if is_json and not is_dry:
        raise Mistake("--json is for what --dry-run tells")
    if is_lines:
        if payload != "-":
            raise Mistake("--lines reads standard input; leave the JSON out, or give -")
        # A read of a terminal or a pipe cannot be cancelled; there is nothing to put in order.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        lines = partial(_publish_lines, name=name, event_id=event_id)
        _warn(call(ctx, lines, create_stack=is_creating))
        _warn(why_of_engine(name))
        return
    data = sys.stdin.buffer.read(EVENT_BYTES_MAX + 1) if payload == "-" else payload.encode()
    if not data.strip():
        raise Mistake(f"{name}: the payload is empty; give a JSON object, such as {{}}")
    if is_dry:
        found = call(ctx, lambda client: client.events.would_fire(name, data, id=event_id))
        print_would_fire(name, found, is_json=is_json)
        return
    stored = call(
        ctx, lambda client: client.publish(name, data, id=event_id), create_stack=is_creating
    )
    seq = stored.seq
    said = (
        f"published, sequence {seq}" if stored.is_new else f"was there already, at sequence {seq}"
    )
    print(f"{name} {stored.id}: {said}")
    _warn(stored.unheard)
    _warn(stored.of_engine)


WOULD: Final = Listing(
    (
        Column("actor", "actor_id"),
        Column("expectation", "expectation_id"),
        Column("would", "outcome"),
        Column("why", "why", room=SENTENCE),
    ),
    wraps=("why",),
)


def print_would_fire(name: str, found: WouldVerdicts, *, is_json: bool = False) -> None:
    """Print what each expectation would do with an event that is not published."""
    rows = [
        {
            "actor_id": each.actor,
            "expectation_id": each.expectation,
            "outcome": each.outcome,
            "why": each.why,
        }
        for each in found.verdicts
    ]
    if is_json:
        record = {"event_id": found.id, "event": name, "why_none": found.why_none or None}
        show_record({**record, "verdicts": rows}, is_json=True)
        return
    show_table(rows, WOULD, title="What it would do", why_none=found.why_none)


def _warn(problem: str) -> None:
    if problem:
        print(f"warning: {problem}", file=sys.stderr)


async def _publish_lines(client: Client, name: str, event_id: str | None) -> str:
    published = await client.events.publish_lines(name, _lines(), id=event_id)
    print(f"published {published:,} events")
    return await client.events.why_unheard(name)


async def _lines() -> AsyncIterator[bytes]:
    while line := await asyncio.to_thread(sys.stdin.buffer.readline, EVENT_BYTES_MAX + 1):
        yield line
