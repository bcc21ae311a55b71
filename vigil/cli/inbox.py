"""`vigil inbox`: everything that waits for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.cli import context
from vigil.cli.output import IsJson, Limit, say_nothing, show_rows


def inbox(
    ctx: typer.Context,
    *,
    actor: Annotated[str | None, typer.Option(help="Only this actor's.")] = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List what waits for a person, with the command to type: the oldest first."""
    from projections.postgres.reader import list_inbox
    from vigil import tables
    from vigil.inbox import lines
    from vigil.reading import ask

    reading = context.reading(ctx)
    rows = ask(reading, lambda pool: list_inbox(pool, reading.stack, actor=actor, limit=limit))
    if is_json:
        show_rows(rows, (), is_json=True, reading=reading)
        return
    for line in lines(rows):
        tables.terminal().print(line, soft_wrap=True)
    if not rows:
        say_nothing("nothing waits for anybody", reading)
