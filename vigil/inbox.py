"""What waits for a person, as people read it: what it is, and the command that settles it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from vigil.tables import Row, in_words, printable, said

INDENT: Final = "  "
WHO: Final = "who may decide"


def lines(rows: Iterable[Row]) -> Iterator[Text]:
    """Yield a few lines for each of `rows`, as `list_inbox` returns them.

    A command is a line of its own, so that it can be copied. Who may decide is said unless anybody
    may.
    """
    for row in rows:
        yield Text(_headline(row), style="bold")
        yield Text(f"{INDENT}{_one_line(row['summary'])}")
        if row["approvers"]:
            yield Text(f"{INDENT}{WHO}: {_one_line(in_words(row)['approvers'])}")
        yield Text(f"{INDENT}{printable(said(row['what_to_do']))}", style="cyan")


def _headline(row: Row) -> str:
    about = [said(row[each]) for each in ("actor_id", "expectation_id") if row[each]]
    until = f", until {said(row['expires_at'])}" if row["expires_at"] else ""
    words = [str(row["kind"]).replace("_", " "), *([".".join(about)] if about else [])]
    return f"{' of '.join(words)} since {said(row['since'])}{until}"


def _one_line(text: object) -> str:
    return printable(" ".join(said(text).split()))
