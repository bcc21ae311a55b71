"""Options that commands share, and how they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import typer

ROWS_MAX: Final = 10_000
"""Most that may be asked for at once; the rows' own limit."""

IsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs.")]
Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="Most rows.")]


def show_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, is_json: bool
) -> None:
    """Print rows: all of each as JSON, the chosen columns as a table."""
    from console import tables

    if is_json:
        print(tables.as_json(rows))
    elif rows:
        tables.terminal().print(tables.table(rows, columns))
    else:
        tables.terminal(stderr=True).print("nothing found")


def show_record(row: Mapping[str, object], *, is_json: bool) -> None:
    """Print one row."""
    from console import tables

    if is_json:
        print(tables.as_json(row))
    else:
        tables.terminal().print(tables.record(row))
