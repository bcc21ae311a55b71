"""Options that commands share, and how they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import typer


def _no_more_than_are_read(limit: int) -> int:
    """Return `limit` if the rows' reader goes as far; looked up late, so that help stays fast."""
    from projections.postgres.answers import ROWS_MAX

    if limit > ROWS_MAX:
        raise typer.BadParameter(f"{limit:,} is more than {ROWS_MAX:,}")
    return limit


IsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs.")]
Limit: TypeAlias = Annotated[
    int, typer.Option(min=1, callback=_no_more_than_are_read, help="Most rows.")
]


Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Longest such wait, in seconds.")
]
WAIT_S: Final = 3_600.0
"""How long `--wait` waits for ends of episodes unless it is told otherwise, in seconds."""


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
