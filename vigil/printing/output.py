"""How commands print rows and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vigil.printing import tables


def show_rows(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    is_json: bool,
    spare: Sequence[str] = (),
    why_none: str = "",
) -> None:
    """Print rows: all of each as JSON, the chosen columns as a table.

    Where there are none, `why_none` is printed on stderr. Where the terminal is too narrow, columns
    of `spare` are left out and named, or each row has a line for each column.
    """
    if is_json:
        print(tables.as_json(rows))
    if not rows and (why := why_none or ("" if is_json else "nothing found")):
        tables.terminal(stderr=True).print(why, markup=False)
    if is_json or not rows:
        return
    terminal = tables.terminal()
    shown = tables.fitted(rows, columns, width=terminal.width, spare=spare)
    terminal.print(shown.body, crop=False)
    if shown.left_out:
        say_aside(f"no room for {', '.join(shown.left_out)}; --json has all")


def say_aside(words: str) -> None:
    """Print on stderr what is not part of the answer."""
    tables.terminal(stderr=True).print(words, style="dim", markup=False)


def show_record(row: Mapping[str, object], *, is_json: bool) -> None:
    """Print one row."""
    if is_json:
        print(tables.as_json(row))
    else:
        terminal = tables.terminal()
        terminal.print(tables.record(row, width=terminal.width), crop=False)
