"""`vigil sql`: any query of the tables."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument

from vigil.commands.call import call
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
    found = call(ctx, lambda client: client.sql(text))
    show_rows(found.as_rows(), found.columns, is_json=is_json)
    if found.is_cut:
        terminal(stderr=True).print(f"only the first {len(found.rows):,} rows")
