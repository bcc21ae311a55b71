"""How commands print rows and records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Protocol

import msgspec
import typer

from streams.clock import SystemClock
from streams.model.events import EndStatus
from vigil.errors import EXIT_TROUBLE
from vigil.printing import columns, tables
from vigil.printing.columns import Listing

_CLOCK: Final = SystemClock()

DRY: Final = "dry run: nothing was changed; without --dry-run it is done"
"""The last line of what would be done."""


def rows_of(records: Iterable[msgspec.Struct]) -> list[dict[str, object]]:
    """Return records as rows of their columns."""
    rows: list[dict[str, object]] = msgspec.to_builtins(list(records), builtin_types=(datetime,))
    return rows


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
        _say_hidden(shown.left_out, shows="--json")


def show_table(
    rows: Sequence[Mapping[str, object]],
    listing: Listing,
    *,
    is_json: bool = False,
    is_wide: bool = False,
    title: str = "",
    why_none: str = "",
    now: datetime | None = None,
    shows: str = "--wide",
) -> None:
    """Print rows: all of each as JSON, or as a table for people, a line for each.

    Where there are none, `why_none` is printed on stderr. Where the terminal is too narrow, long
    texts end with `…`, and columns are left out and named, with the option that `shows` them;
    a table that `is_wide` has all of it.
    """
    if is_json or not rows:
        show_rows(rows, (), is_json=is_json, why_none=why_none)
        return
    at = now or _CLOCK.now()
    shown = columns.told(rows, listing, now=at, is_wide=is_wide)
    terminal = tables.terminal(is_wide=is_wide)
    spare = listing.left_out_first(is_wide=is_wide)
    rooms = listing.rooms(is_wide=is_wide)
    found = tables.fitted(
        shown,
        [*shown[0]],
        width=terminal.width,
        spare=spare,
        rooms=rooms,
        is_cut=True,
        cuts=listing.cuts,
        wraps=listing.wraps,
    )
    if title:
        terminal.print(title, style="bold", markup=False)
    terminal.print(found.body, crop=False)
    if found.left_out:
        _say_hidden(found.left_out, shows=shows)


def _say_hidden(left_out: Sequence[str], *, shows: str) -> None:
    """Print which columns had no room, apart from the rows."""
    say_aside(f"\nhidden: {', '.join(left_out)} ({shows} shows them)")


def show_section(
    title: str, rows: Sequence[Mapping[str, object]], listing: Listing, *, now: datetime
) -> None:
    """Print rows under a title, below what is printed already; nothing if there are none."""
    if rows:
        print()
        show_table(rows, listing, title=title, now=now, shows="--json")


def show_sheet(heading: str, row: Mapping[str, object], *, utc: bool = True) -> None:
    """Print what there is to read of one thing: a line for each label that has a value.

    Args:
        utc: say that its times are in UTC.
    """
    terminal = tables.terminal()
    said = f"{heading} (times in UTC)" if utc else heading
    terminal.print(tables.printable(said), style="bold", markup=False, soft_wrap=True)
    terminal.print(tables.record(row, width=terminal.width), crop=False)


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


class PrintedOutcome(Protocol):
    """What of the outcome of a request is printed."""

    @property
    def name(self) -> str:
        """What it was about."""

    @property
    def done(self) -> str:
        """What was done."""

    @property
    def refused(self) -> str:
        """Why it was refused; empty: it was not."""

    @property
    def obstacle(self) -> str:
        """Why no node handles it now; empty: one does."""

    @property
    def is_in_vain(self) -> bool:
        """Whether it was waited for in vain."""


def report(outcomes: Iterable[PrintedOutcome]) -> None:
    """Print what was done, and on stderr what is in the way and what was refused.

    Exit code 1 if a request was refused, or waited for in vain.
    """
    found = list(outcomes)
    for each in found:
        if not each.refused:
            print(f"{each.name}: {each.done}")
    for why in sorted({each.obstacle for each in found if each.obstacle}):
        print(f"vigil: {why}", file=sys.stderr)
    refused = [each for each in found if each.refused]
    for each in refused:
        print(f"vigil: {each.name}: {each.refused}", file=sys.stderr)
    if refused or any(each.is_in_vain for each in found):  # guard: vain-wait-exit-code
        raise typer.Exit(EXIT_TROUBLE)


def say_begun(what: str, id_: str, *, used: str, obstacle: str, is_json: bool) -> None:
    """Print the id of what was requested of `what`, and why nothing begins now."""
    if not is_json:
        print(id_, flush=True)
    if used:
        print(f"vigil: {what}: {used}", file=sys.stderr, flush=True)
    if obstacle:
        print(f"vigil: {what}: {obstacle}; it waits", file=sys.stderr, flush=True)


@contextmanager
def waiting(goes_on: str) -> Iterator[None]:
    """On Ctrl-C, print what goes on without the one who waits."""
    try:
        yield
    except KeyboardInterrupt:  # guard: interrupted-wait-told
        print(f"vigil: {goes_on}", file=sys.stderr)
        raise


def report_begun(
    begun: Mapping[str, object], row: Mapping[str, object] | None, *, is_json: bool
) -> None:
    """Print how an episode ended, or with `is_json` also `begun`; exit 1 unless it is done.

    `row` is None if the command did not wait for the end.
    """
    if is_json:
        print(tables.as_json({**begun, **(row or {})}))
    elif row is not None:
        words = (
            row["status"],
            row["error_class"],
            tables.cause_of(row["error_detail"]),
            row["summary"],
        )
        print(": ".join(str(each) for each in words if each))
    if row is not None and row["status"] != EndStatus.DONE:
        raise typer.Exit(EXIT_TROUBLE)
