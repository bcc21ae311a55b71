"""How commands print rows and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vigil.printing import tables

if TYPE_CHECKING:
    from vigil.settings import Reading


def show_rows(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    is_json: bool,
    spare: Sequence[str] = (),
    reading: Reading | None = None,
) -> None:
    """Print rows: all of each as JSON, the chosen columns as a table.

    With `reading`, say so if nothing was ever projected for its stack. Where the terminal is too
    narrow, columns of `spare` are left out and named, or each row has a line for each column.
    """
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
    """Print on stderr why there are no rows: the stack is unknown, or else `words`."""
    from vigil.asking.rows import why_empty

    said = (why_empty(reading) if reading is not None else "") or words
    if said:
        tables.terminal(stderr=True).print(said, markup=False)


def show_record(row: Mapping[str, object], *, is_json: bool) -> None:
    """Print one row."""
    if is_json:
        print(tables.as_json(row))
    else:
        terminal = tables.terminal()
        terminal.print(tables.record(row, width=terminal.width), crop=False)
