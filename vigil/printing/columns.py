"""What people read of rows: which columns, under which headings, and how a value reads. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

from streams.model.outputs import OutputStatus
from vigil.printing.tables import TEXT_MIN, Row, cause_of, in_words, said

ID_CHARS: Final = (8, 13, 18, 23, 36)
"""How much of an id is shown: as little as tells it from the others. Each ends a group of it."""

SENTENCE: Final = 64
"""Room for an error, in columns of characters: its class, and what went wrong."""

_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d):\d\d UTC")
_EVERY: Final = re.compile(r"\bevery (\d+)s\b")

UTC: Final = "(UTC)"

SECOND_MS: Final = 1_000
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400

RETRYING: Final = "retrying"
"""What an output is called that could not be delivered yet."""

DRY_RUN: Final = "dry_run"
"""The mode of an episode, or of an instance, that changes nothing outside."""


class Form(Enum):
    """How the values of a column read."""

    AS_IS = auto()
    ID = auto()
    """An id: its beginning; all of it if the table is wide."""
    KEY = auto()
    """A text that may be an id, or end with one behind a dot or a blank: its beginning; all if it
    is wide."""
    AGE = auto()
    """A time: how long ago, or in how long; the time in UTC if the table is wide."""
    TIME = auto()
    """A time in UTC, which the heading says."""


@dataclass(frozen=True)
class Column:
    """A column of a table for people."""

    heading: str
    of: str
    """The column of the row that it shows."""
    form: Form = Form.AS_IS
    wide: str = ""
    """Its heading in a wide table, if that is another one."""
    room: int = TEXT_MIN
    """Room for a text of several words, before less important columns have any; in columns of
    characters. There is less of it only in a terminal that is narrower."""


@dataclass(frozen=True)
class Listing:
    """A table for people."""

    columns: Sequence[Column]
    spare: Sequence[str] = ()
    """The headings of what is left out where there is no room, the least important first."""
    cuts: Sequence[str] = ()
    """The headings of words that are cut where there is no room, and not copied whole."""
    wraps: Sequence[str] = ()
    """The headings of what goes on in the next line where there is no room, and is never cut."""

    def rooms(self, *, is_wide: bool = False) -> Mapping[str, int]:
        """Return heading → the room for a text, as far as there is any."""
        return {_heading(each, is_wide=is_wide): each.room for each in self.columns}

    def left_out_first(self, *, is_wide: bool = False) -> Sequence[str]:
        """Return `spare` as the table is headed."""
        headed = {each.heading: _heading(each, is_wide=is_wide) for each in self.columns}
        return tuple(headed[each] for each in self.spare)


def told(
    rows: Sequence[Row], listing: Listing, *, now: datetime, is_wide: bool = False
) -> list[dict[str, object]]:
    """Return rows as people read them: heading → value, without what is empty in every row."""
    shown: dict[str, list[object]] = {}
    for column in listing.columns:
        values = [row.get(column.of) for row in rows]
        if any(value not in (None, "", [], {}) for value in values):
            heading = _heading(column, is_wide=is_wide)
            shown[heading] = _formed(values, column.form, now=now, is_wide=is_wide)
    return [{heading: values[at] for heading, values in shown.items()} for at in range(len(rows))]


def short_ids(ids: Iterable[object]) -> dict[str, str]:
    """Return id → so much of its beginning, at least 8 digits, that it is none of the others."""
    whole = {str(each) for each in ids if each}
    sharing = {chars: Counter(each[:chars] for each in whole) for chars in ID_CHARS}

    def short(id_: str) -> str:
        beginnings = (id_[:chars] for chars in ID_CHARS if sharing[chars][id_[:chars]] == 1)
        # guard: short-id-unique
        return next(beginnings, id_)

    return {each: short(each) for each in whole}


def short_id(id_: object) -> str:
    """Return the beginning of one id."""
    return str(id_)[: ID_CHARS[0]] if id_ else ""


def in_brief(text: object, now: datetime) -> str:
    """Return a sentence with the beginnings of its ids, and with how far away its times are."""

    def near(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(f"{found[0].removesuffix(' UTC')}+00:00")
        day = "" if at.date() == now.date() else f"{found[1]} "
        far = age(at, now)
        return f"{day}{found[2]} UTC ({far if far.startswith('in ') else f'{far} ago'})"

    short = _ID.sub(lambda found: short_id(found[0]), str(text or ""))
    return _MOMENT.sub(near, short)


def age(at: datetime, now: datetime) -> str:
    """Return how long ago `at` was, or in how long it is, in its largest unit: 42s, 3m, 2h, 4d."""
    seconds = (now - at).total_seconds()
    return f"in {_duration(-seconds)}" if seconds < 0 else _duration(seconds)


def moment(at: object, now: datetime) -> str | None:
    """Return a time, and how long ago that was or in how long it is; None: there is none."""
    if not isinstance(at, datetime):
        return None
    far = age(at, now)
    return f"{said(at)}, {far if far.startswith('in ') else f'{far} ago'}"


def took(milliseconds: object) -> str | None:
    """Return a duration as people read it: 120ms, 4.2s, 3m."""
    if not isinstance(milliseconds, int | float):
        return None
    if milliseconds < SECOND_MS:
        return f"{milliseconds:.0f}ms"
    seconds = milliseconds / SECOND_MS
    if seconds >= MINUTE_S:
        return _duration(seconds)
    return f"{f'{seconds:.1f}'.removesuffix('.0')}s"


def length(seconds: float) -> str:
    """Return how long something is to last, exactly: 0.5s, 90s, 30d."""
    whole = int(seconds)
    return interval(whole) if whole and whole == seconds else f"{seconds:g}s"


def interval(seconds: int) -> str:
    """Return an interval exactly, in the largest unit that divides it: 90s, 90m, 30d."""
    units = (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S))
    unit, of_one_s = next((each for each in units if seconds % each[1] == 0), ("s", 1))
    return f"{seconds // of_one_s}{unit}"


def with_intervals(text: str) -> str:
    """Return a text about schedules with their intervals as people write them: `every 30d`."""
    return _EVERY.sub(lambda found: f"every {interval(int(found[1]))}", text)


def error_of(row: Row) -> str | None:
    """Return an error on one line: its class, and the line of its detail that says what it is."""
    cause = cause_of(row.get("error_detail"))
    named = row.get("error_class")
    if named and cause.startswith(f"{named}: "):
        return cause
    return ": ".join(str(each) for each in (named, cause) if each) or None


def output_status(row: Row) -> object:
    """Return the status of an output as people read it; `--json` has it as it is."""
    is_retried = row["status"] == OutputStatus.PROPOSED and row["attempts"]
    return RETRYING if is_retried else row["status"]


def marked(row: Row) -> str:
    """Return the status of an episode or an instance, with what sets it apart."""
    found = marks(row)
    return f"{row['status']}, {found}" if found else str(row["status"])


def marks(row: Row) -> str | None:
    """Return what sets an episode or an instance apart: that it is a dry run, or a fork."""
    found = ["dry run"] if row.get("mode") == DRY_RUN else []
    found += ["fork"] if row.get("forked_from") else []
    return ", ".join(found) or None


def sheet(
    row: Row,
    *,
    usual: Mapping[str, object],
    hidden: Iterable[str] = (),
    first: Row | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return what there is to read of one row: label → value.

    Args:
        usual: column → the value that goes without saying.
        hidden: the columns that `first` tells, or that are for programs.
        first: label → value, before the others.
        labels: column → its label, if it is not the column's name in words.
    """
    unsaid, labeled = {*hidden}, labels or {}
    rest = {
        labeled.get(column) or column.removesuffix("_id").replace("_", " "): value
        for column, value in in_words(row).items()
        if column not in unsaid and not (column in usual and usual[column] == row[column])
    }
    both = {**(first or {}), **rest}
    return {label: value for label, value in both.items() if value not in (None, "", [], {})}


def _heading(column: Column, *, is_wide: bool) -> str:
    name = column.wide if is_wide and column.wide else column.heading
    is_time = column.form is Form.TIME or (column.form is Form.AGE and is_wide)
    return f"{name} {UTC}" if is_time else name


def _formed(values: Sequence[object], form: Form, *, now: datetime, is_wide: bool) -> list[object]:
    if form is Form.ID and not is_wide:
        short = short_ids(values)
        return [short[str(each)] if each else None for each in values]
    if form is Form.KEY and not is_wide:
        short = short_ids(_id_in(each) for each in values)
        return [_with_short_id(str(each), short) for each in values]
    if form is Form.AGE and not is_wide:
        return [age(each, now) if isinstance(each, datetime) else None for each in values]
    return list(values)


def _id_in(key: object) -> str:
    """Return the id that a key ends with; empty: it ends with none."""
    end = re.split("[. ]", str(key))[-1]
    return end if _ID.fullmatch(end) else ""  # guard: key-without-id-whole


def _with_short_id(key: str, short: Mapping[str, str]) -> str:
    id_ = _id_in(key)
    return f"{key.removesuffix(id_)}{short[id_]}" if id_ else key


def _duration(seconds: float) -> str:
    whole = int(seconds)
    for unit, of_one_s in (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S)):
        if whole >= of_one_s:
            return f"{whole // of_one_s}{unit}"
    return f"{whole}s"
