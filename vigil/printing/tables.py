"""Rows for people, and for programs."""

from __future__ import annotations

import io
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TextIO, TypeAlias

import msgspec
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from streams.model.events import EndStatus
from streams.model.findings import FindingStatus, Severity
from streams.model.outputs import OutputStatus

PLAIN_WIDTH: Final = 100_000
"""Columns of characters in a file or a pipe, where a row is one line."""

SEVERITY_STYLES: Final[Mapping[str, str]] = {
    Severity.CRITICAL: "bold white on red",
    Severity.HIGH: "bold red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "cyan",
}
STATUS_STYLES: Final[Mapping[str, str]] = {
    "waiting": "yellow",
    "requeued": "green",
    "discarded": "dim",
    "queued": "dim",
    "running": "bold cyan",
    "blocked": "magenta",
    EndStatus.DONE: "green",
    EndStatus.FAILED: "bold red",
    EndStatus.PARTIALLY_FAILED: "red",
    EndStatus.CANCELED: "dim",
    OutputStatus.AWAITING_APPROVAL: "magenta",
    OutputStatus.PROPOSED: "yellow",
    "retrying": "yellow",
    OutputStatus.DELIVERED: "green",
    OutputStatus.REJECTED: "dim",
    FindingStatus.ACTIVE: "yellow",
    "active, acknowledged": "yellow",
    FindingStatus.CLEARED: "green",
    FindingStatus.EXPIRED: "dim",
    "ok": "green",
    "problem": "bold red",
}

UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"

SEPARATOR: Final = ", "

NONE: Final = "none"

Row = Mapping[str, object]

NO_ROOMS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True)
class Fitted:
    """Rows as they fit where they are printed."""

    body: RenderableType
    left_out: Sequence[str]


class _Trimmed(io.StringIO):
    """A stream in front of another, without the blanks that fill up the lines of a table."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str, /) -> int:
        return self._stream.write("\n".join(line.rstrip(" ") for line in text.split("\n")))

    def flush(self) -> None:
        self._stream.flush()


def terminal(*, stderr: bool = False, is_wide: bool = False) -> Console:
    """Return where to print; a file or a pipe counts as wide, and so does a terminal if it must."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty() and not is_wide:
        return Console(file=stream, highlight=False)
    return Console(file=_Trimmed(stream), width=PLAIN_WIDTH, highlight=False)


def as_json(value: object) -> str:
    """Return `value` as JSON to read; what JSON has no form for is text."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    return msgspec.json.format(encoded, indent=2).decode()


def as_json_line(value: object) -> str:
    """Return `value` as JSON on one line; what JSON has no form for is text."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def table(rows: Iterable[Row], columns: Sequence[str], *, title: str = "") -> Table:
    """Return the chosen columns of `rows` as a table."""
    made = Table(title=title or None, title_justify="left", header_style="bold", box=None)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(cell(column, row.get(column)) for column in columns))
    return made


def fitted(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    width: int,
    spare: Sequence[str] = (),
    rooms: Mapping[str, int] = NO_ROOMS,
    is_cut: bool = False,
    cuts: Sequence[str] = (),
    wraps: Sequence[str] = (),
) -> Fitted:
    """Return `rows` as a table no wider than `width`; if none is, as one record below another.

    Args:
        width: columns of characters that there are; `PLAIN_WIDTH`: a row is one line.
        spare: the columns to leave out if need be, the least important first.
        rooms: column → room for a text of several words, before less important columns have any;
            `TEXT_MIN` by default.
        is_cut: a row is one line, and what has no room in it ends with `…`. What people copy, a
            word, stays whole, and so does what stands in a column of `wraps`.
        cuts: the columns of words that nobody copies: they are cut, too.
    """
    is_line = is_cut or width == PLAIN_WIDTH
    shown = on_one_line if is_line else cell  # guard: piped-row-one-line
    texts = {column: [shown(column, row.get(column)) for row in rows] for column in columns}
    cells = {column: [text.plain for text in found] for column, found in texts.items()}
    found = fit(cells, width=width, spare=spare, rooms=rooms, cuts=cuts)
    if found is None:
        chosen = [{column: row.get(column) for column in columns} for row in rows]
        return Fitted(Group(*(Group(record(row, width=width), Text()) for row in chosen)), ())
    whole = frozenset(wraps)
    made = Table(header_style="bold", box=None)
    for column, wide in found.items():
        made.add_column(column, overflow="fold", width=wide)
    for row, line in zip(rows, zip(*(texts[each] for each in found), strict=True), strict=True):
        parts = zip(found.items(), line, strict=True)
        made.add_row(
            *(
                _cut(text, wide)
                if is_cut
                and column not in whole
                and (column in cuts or not _is_word(row.get(column), text))
                else text
                for (column, wide), text in parts
            )
        )
    return Fitted(made, left_out(cells, found))


def _is_word(value: object, text: Text) -> bool:
    return not isinstance(value, dict | list) and len(text.plain.split()) == 1


def _cut(text: Text, width: int) -> Text:
    """Return `text` so that it is no wider than `width`."""
    short = text.copy()
    short.truncate(width, overflow="ellipsis")
    return short


def record(row: Row, *, width: int) -> RenderableType:
    """Return one row with a line for each column that has a value.

    What has no room beside its column's name has a line of its own: print it uncropped, and the
    terminal breaks it, so that it is copied whole.
    """
    told = {column: value for column, value in row.items() if value is not None}
    label = max(map(cell_len, told), default=0)
    room = width - label - 2 * PADDING
    return Group(*(_told(column, value, label, room) for column, value in told.items()))


def _told(column: str, value: object, label: int, room: int) -> RenderableType:
    text = cell(column, value)
    if _is_word(value, text) and text.cell_len > room:  # guard: copied-word-whole
        name = Text(f" {column}", style="bold")
        return Text("\n", no_wrap=True, overflow="ignore").join([name, Text(" ") + text])
    made = Table(show_header=False, box=None)
    made.add_column(style="bold", width=label)
    made.add_column(overflow="fold")
    made.add_row(column, text)
    return made


def cell(column: str, value: object) -> Text:
    """Return what stands in a table for `value`."""
    styles = {"severity": SEVERITY_STYLES, "status": STATUS_STYLES}.get(column, {})
    words = said(value)
    return Text(printable(words), style=styles.get(words, ""))


def on_one_line(column: str, value: object) -> Text:
    """Return what stands in a table for `value` where each row is a line."""
    text = cell(column, value)
    return Text(" ".join(text.plain.splitlines()), style=text.style)


def printable(text: str) -> str:
    """Return `text` without what would move a terminal's cursor or turn its letters around.

    Programs write summaries and plans: people must read what is there before they decide.
    """
    # guard: shown-commands-no-terminal
    return "".join(each if each.isprintable() or each in "\n\t" else UNPRINTABLE for each in text)


def cause_of(detail: object) -> str:
    """Return the line of an error's detail that says what went wrong; empty: there is none."""
    from engine.errors import cause_line  # A list of what went well needs no engine.

    return cause_line(str(detail or ""))


def spelled_out(row: Row, *columns: str) -> Row:
    """Return `row` with the JSON of `columns` on lines of its own, behind everything else."""
    last = {each: as_json(row[each]) for each in columns if row.get(each) is not None}
    return {key: value for key, value in row.items() if key not in columns} | last


def in_words(row: Row) -> Row:
    """Return `row` with its objects and lists as people write them."""
    return {column: _worded(value) for column, value in row.items()}


def as_words(pairs: Mapping[str, object], *, usual: Mapping[str, object] | None = None) -> str:
    """Return an object as `key=value` words, but for what is as usual.

    What is within another object is named after both, as in `breaker.threshold=3`.
    """
    return SEPARATOR.join(_words(pairs, usual or {}))


def _words(pairs: Mapping[str, object], usual: Mapping[str, object]) -> Iterable[str]:
    for key, value in pairs.items():
        as_usual = usual.get(key)
        if isinstance(value, Mapping):
            inner = list(_words(value, as_usual if isinstance(as_usual, Mapping) else {}))
            yield from (f"{key}.{word}" for word in inner) if inner else (key,)
        elif key not in usual or value != as_usual:
            yield f"{key}={NONE if value is None else said(value)}"


def as_list(values: object) -> str:
    """Return a list as people write it; empty: there is none."""
    return SEPARATOR.join(map(str, values)) if isinstance(values, list | tuple) else ""


def _worded(value: object) -> object:
    match value:
        case list():
            return SEPARATOR.join(map(str, value)) or None
        case dict():
            return as_words(value) or None
        case "":
            return None
        case _:
            return value


def said(value: object) -> str:
    """Return `value` in words: times in UTC to the second, objects as JSON, nothing as nothing."""
    match value:
        case None:
            return ""
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case dict() | list():
            return as_json_line(value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


WHOLE_MAX: Final = 64
"""Most room that a text without blanks claims, in columns of characters: a SHA-256 in hex."""

TEXT_MIN: Final = 19
"""Least room for a text of several words, in columns of characters: a time to the second."""

CUT_MIN: Final = 11
"""Least room for words that are cut, in columns of characters."""

PADDING: Final = 2
"""Blanks on either side of a column."""

Cells: TypeAlias = Mapping[str, Sequence[str]]
"""Column → what stands in it, row by row."""


def fit(
    cells: Cells,
    *,
    width: int,
    spare: Sequence[str] = (),
    rooms: Mapping[str, int] = NO_ROOMS,
    cuts: Sequence[str] = (),
) -> dict[str, int] | None:
    """Return the width of each column that is to be shown, or None if no table fits.

    A table that fits has all its columns. Otherwise those that are empty are left out, and of
    `spare`, the least important first, those that there is no room for. What matters more has as
    much of its room of `rooms` as there is before what matters less has any. Columns of `cuts`
    give way to all that is kept.
    """

    def narrowest(column: str, text_min: int) -> int:
        if column in cuts:
            return max(cell_len(column), min(CUT_MIN, max(map(_widest, cells[column]), default=0)))
        texts = (_narrowest(each, text_min) for each in cells[column])
        return max([cell_len(column), *texts])

    least = {column: narrowest(column, TEXT_MIN) for column in cells}
    wanted = {column: narrowest(column, rooms.get(column, TEXT_MIN)) for column in cells}
    kept = _kept(cells, least, wanted, width, spare)
    if kept is None:
        return None
    room = width - PADDING * len(kept)
    return _shared_out({column: cells[column] for column in cells if column in kept}, kept, room)


def left_out(cells: Cells, widths: Mapping[str, int]) -> list[str]:
    """Return the columns that are not empty, and for which there was no room."""
    return [column for column in cells if column not in widths and any(cells[column])]


def _kept(
    cells: Cells,
    least: Mapping[str, int],
    wanted: Mapping[str, int],
    width: int,
    spare: Sequence[str],
) -> Mapping[str, int] | None:
    """Return the columns to show, and the room that each has for certain."""

    def left(columns: Mapping[str, int]) -> int:
        return width - sum(each + PADDING for each in columns.values())

    if left(wanted) >= 0:
        return wanted
    telling = [column for column, texts in cells.items() if any(texts)]
    kept = {column: least[column] for column in telling if column not in spare}
    if left(kept) < 0:
        return None
    by_weight = [*kept, *reversed(spare)]  # guard: column-order-of-loss
    for column in by_weight:
        room = left(kept) + kept[column] if column in kept else left(kept) - PADDING
        if column in telling and room >= least[column]:
            kept[column] = min(room, wanted[column])  # guard: error-before-lesser-column
    return kept


def _narrowest(text: str, text_min: int) -> int:
    # guard: text-gives-way-before-id
    is_several = len(text.split()) > 1 or text.startswith(("{", "["))
    return min(_widest(text), text_min if is_several else WHOLE_MAX)


def _widest(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _shared_out(cells: Cells, least: Mapping[str, int], room: int) -> dict[str, int]:
    """Return widths that add up to `room` at most: what is wide gives way to what is narrow."""
    full = {column: max([least[column], *map(_widest, cells[column])]) for column in cells}

    def widths(most: int) -> dict[str, int]:
        return {column: min(full[column], max(least[column], most)) for column in cells}

    fitting = bisect_right(range(room + 1), room, key=lambda most: sum(widths(most).values()))
    return widths(fitting - 1)
