"""`vigil sql`: any query of the tables."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument

from projections.postgres.reader import run_sql
from vigil import options
from vigil.asking.rows import ask
from vigil.options import IsJson
from vigil.printing.output import show_rows
from vigil.printing.tables import terminal


def sql(
    ctx: typer.Context,
    *,
    text: Annotated[str, Argument(metavar="SQL", help="One statement that only reads.")],
    is_json: IsJson = False,
) -> None:
    """Query the tables with SQL. Names are found in the schema `vigil`; nothing can be changed."""
    found = ask(options.config(ctx), lambda pool: run_sql(pool, text))
    show_rows(found.as_rows(), found.columns, is_json=is_json)
    if found.is_cut:
        terminal(stderr=True).print(f"only the first {len(found.rows):,} rows")
