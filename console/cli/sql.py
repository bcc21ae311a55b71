"""`vigil sql`: any question to the rows."""

from __future__ import annotations

from typing import Annotated

import typer

from console.cli import context
from console.cli.output import IsJson, show_rows


def sql(
    ctx: typer.Context,
    *,
    text: Annotated[str, typer.Argument(metavar="SQL", help="One statement that only reads.")],
    is_json: IsJson = False,
) -> None:
    """Ask the rows anything. Names are found in the schema `vigil`; nothing can be changed."""
    from console.reading import ask
    from console.tables import terminal
    from projections.postgres.reader import run_sql

    found = ask(context.reading(ctx), lambda pool: run_sql(pool, text))
    show_rows(found.as_rows(), found.columns, is_json=is_json)
    if found.is_cut:
        terminal(stderr=True).print(f"only the first {len(found.rows):,} rows")
