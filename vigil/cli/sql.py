"""`vigil sql`: any question to the rows."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.cli import context
from vigil.cli.output import IsJson, show_rows


def sql(
    ctx: typer.Context,
    *,
    text: Annotated[str, typer.Argument(metavar="SQL", help="One read-only statement.")],
    is_json: IsJson = False,
) -> None:
    """Run a read-only query. Names are looked up in the schema `vigil`."""
    from projections.postgres.reader import run_sql
    from vigil.reading import ask
    from vigil.tables import terminal

    found = ask(context.reading(ctx), lambda pool: run_sql(pool, text))
    show_rows(found.as_rows(), found.columns, is_json=is_json)
    if found.is_cut:
        terminal(stderr=True).print(f"only the first {len(found.rows):,} rows")
