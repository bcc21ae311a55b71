"""`vigil publish`: domain events from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.cli import context


def publish(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's dotted name.")],
    payload: Annotated[
        str, typer.Argument(metavar="JSON", help="A JSON object; - reads standard input.")
    ] = "-",
    event_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="The event's id: within two minutes, the server keeps one event of each id.",
        ),
    ] = None,
    is_lines: Annotated[
        bool, typer.Option("--lines", help="Each line of standard input is an event.")
    ] = False,
) -> None:
    """Publish a domain event."""
    from vigil import publishing
    from vigil.errors import Mistake

    reading = context.reading(ctx)
    if is_lines:
        if payload != "-":
            raise Mistake("--lines reads standard input; leave the JSON out, or say -")
        print(f"published {publishing.publish_lines(reading, name, id=event_id):,} events")
        return
    done = publishing.publish_one(reading, name, payload, id=event_id)
    print(
        f"{name} {done.id}: "
        + (
            f"was there already, at sequence {done.seq}"
            if done.is_duplicate
            else f"published, sequence {done.seq}"
        )
    )
