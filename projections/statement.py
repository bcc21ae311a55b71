"""Row changes as data, and how many of them become few statements. Pure.

A statement is one query in `sql/`. It takes one array per column and changes many rows
at once, each row at most once, and looks at no row other than those it is given. A change
is one row of such arrays.

Applying changes one by one, in order, is the meaning; `arrange` says the same in few
statements. It puts changes into waves: within a wave statements run in the order of
their rank, and each holds at most one change per row.

- A change joins an earlier one of the same statement and row: `fold` makes them one.
- That would be wrong once a statement of higher rank has changed the row, so then the
  row's next wave begins.

A row that lives an ordinary life (opened, then advanced; saved again and again) needs
one wave, so a batch of any size is a handful of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

Values: TypeAlias = tuple[object, ...]
Fold: TypeAlias = Callable[[Values, Values], Values]


def last_wins(_earlier: Values, later: Values) -> Values:
    """Return `later`: it says everything about the row."""
    return later


def fill_in(earlier: Values, later: Values) -> Values:
    """Return `later`, and where it says nothing (None), `earlier`."""
    pairs = zip(earlier, later, strict=True)
    return tuple([old if new is None else new for old, new in pairs])


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A query in `sql/` that changes rows of one table."""

    name: str
    table: str
    rank: int = 0
    """Among the statements of its table, lowest first; no two share one."""
    key_size: int
    """How many of a change's values, from the first, name the row."""
    fold: Fold = last_wins
    """Makes one change of two: applying it is applying the first and then the second."""


class Change(msgspec.Struct, frozen=True):
    """What one statement is to do to one row."""

    statement: Statement
    values: Values


class Batch(msgspec.Struct, frozen=True):
    """One run of a statement: many rows, each once."""

    statement: Statement
    rows: Sequence[Values]

    def columns(self) -> list[Values]:
        """Return the rows as one array per column."""
        return list(zip(*self.rows, strict=True))


class Arrangement:
    """Changes on their way to be few batches."""

    def __init__(self) -> None:
        self._waves: list[dict[str, tuple[Statement, dict[Values, Values]]]] = []
        self._reached: dict[tuple[str, Values], tuple[int, int]] = {}
        """The wave and the rank at which each row was changed last."""

    def add(self, change: Change) -> None:
        """Take one more change, to happen after all that were taken before."""
        statement, values = change.statement, change.values
        key = values[: statement.key_size]
        row = statement.table, key
        wave, rank = self._reached.get(row, (0, statement.rank))
        if statement.rank < rank:
            wave += 1
        self._reached[row] = wave, statement.rank
        if wave == len(self._waves):
            self._waves.append({})
        _, rows = self._waves[wave].setdefault(statement.name, (statement, {}))
        earlier = rows.get(key)
        rows[key] = values if earlier is None else statement.fold(earlier, values)

    def batches(self) -> list[Batch]:
        """Return what leaves the same rows as applying the changes one by one, in order."""
        return [batch for wave in self._waves for batch in _in_order(wave)]


def arrange(changes: Iterable[Change]) -> list[Batch]:
    """Return what leaves the same rows as applying `changes` one by one, in order."""
    arrangement = Arrangement()
    for change in changes:
        arrangement.add(change)
    return arrangement.batches()


def _in_order(wave: dict[str, tuple[Statement, dict[Values, Values]]]) -> list[Batch]:
    placed = sorted(wave.values(), key=lambda each: each[0].rank)
    return [Batch(statement, tuple(rows.values())) for statement, rows in placed]
