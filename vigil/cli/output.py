"""Options that commands share, and how they print."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

if TYPE_CHECKING:
    from vigil.settings import Reading
    from vigil.used import Use


def _no_more_than_are_read(limit: int) -> int:
    """Return `limit` if the rows' reader goes as far; looked up late, so that help stays fast."""
    from projections.postgres.query_result import ROWS_MAX

    if limit > ROWS_MAX:
        raise typer.BadParameter(f"{limit:,} is more than {ROWS_MAX:,}")
    return limit


IsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs.")]
Limit: TypeAlias = Annotated[
    int, typer.Option(min=1, callback=_no_more_than_are_read, help="Maximum number of rows.")
]


Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Longest wait, in seconds.")
]
WAIT_S: Final = 3_600.0
"""How long `--wait` waits for ends of episodes unless it is told otherwise, in seconds."""


def show_rows(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    is_json: bool,
    spare: Sequence[str] = (),
    reading: Reading | None = None,
) -> None:
    """Print rows: all of each as JSON, the chosen columns as a table.

    With `reading`, where the rows are of, it says so if nothing was ever projected there.

    A terminal may be too narrow: then it says which of `spare` are left out, or has each row with
    a line for each column.
    """
    from vigil import tables

    if is_json:
        print(tables.as_json(rows))
    if not rows:
        say_nothing("" if is_json else "nothing found", reading)
    if is_json or not rows:
        return
    terminal = tables.terminal()
    shown = tables.fitted(rows, columns, width=terminal.width, spare=spare)
    terminal.print(shown.body, crop=False)
    if shown.left_out:
        words = f"no room for {', '.join(shown.left_out)}; --json has all"
        tables.terminal(stderr=True).print(words, style="dim")


def say_nothing(words: str, reading: Reading | None) -> None:
    """Say on stderr why there are no rows: the stack is none, or else `words`, if there are any."""
    from vigil import tables
    from vigil.unprojected import why_empty

    said = (why_empty(reading) if reading is not None else "") or words
    if said:
        tables.terminal(stderr=True).print(said, markup=False)


@contextmanager
def waiting(goes_on: str) -> Iterator[None]:
    """Say what goes on all the same when whoever waits for it has had enough."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"vigil: {goes_on}", file=sys.stderr)
        raise


def say_begun(what: str, id_: str, *, used: Use | None, obstacle: str, is_json: bool) -> None:
    """Print the id of what was asked of `what`, and why nothing new or not yet comes of it."""
    if not is_json:
        print(id_, flush=True)
    if used is not None:
        print(f"vigil: {what}: {used.in_words}", file=sys.stderr, flush=True)
    if obstacle:
        print(f"vigil: {what}: {obstacle}; it waits", file=sys.stderr, flush=True)


def show_record(row: Mapping[str, object], *, is_json: bool) -> None:
    """Print one row."""
    from vigil import tables

    if is_json:
        print(tables.as_json(row))
    else:
        terminal = tables.terminal()
        terminal.print(tables.record(row, width=terminal.width), crop=False)
