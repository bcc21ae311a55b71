"""How wide the columns of a table are where people read it.

What people copy stays whole: an id, a key, a hash stands on one line of the table, or no table is
made of it. Texts of several words are broken. What then still is too wide has columns left out, the
least important ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from rich.cells import cell_len

WHOLE_MAX: Final = 64
"""Most room that a word by itself claims, in columns of characters: a SHA-256 in hex."""

TEXT_MIN: Final = 19
"""Least room for a text of several words, in columns of characters: a time to the second."""

PADDING: Final = 2
"""What a column has besides its text: a blank on either side."""

Cells: TypeAlias = Mapping[str, Sequence[str]]
"""Column → what stands in it, row by row."""


def fit(cells: Cells, *, width: int, spare: Sequence[str] = ()) -> dict[str, int] | None:
    """Return the width of each column that is to be shown, or None if no table fits.

    A table that fits as it is has all its columns. Otherwise those that say nothing are left out,
    and of `spare`, the least important first, those that there is no room for.
    """
    least = {column: _least(column, texts) for column, texts in cells.items()}
    kept = _kept(cells, least, width, spare)
    if kept is None:
        return None
    room = width - PADDING * len(kept)
    return _shared_out({column: cells[column] for column in cells if column in kept}, least, room)


def left_out(cells: Cells, widths: Mapping[str, int]) -> list[str]:
    """Return the columns that say something, and for which there was no room."""
    return [column for column in cells if column not in widths and any(cells[column])]


def _kept(
    cells: Cells, least: Mapping[str, int], width: int, spare: Sequence[str]
) -> Collection[str] | None:
    def fits(columns: Collection[str]) -> bool:
        return sum(least[column] + PADDING for column in columns) <= width

    if fits(cells):
        return cells
    telling = [column for column, texts in cells.items() if any(texts)]
    kept = [column for column in telling if column not in spare]
    if not fits(kept):
        return None
    for column in reversed(spare):
        if column in telling and fits([*kept, column]):
            kept.append(column)
    return kept


def _least(column: str, texts: Sequence[str]) -> int:
    return max([cell_len(column), *map(_narrowest, texts)])


def _narrowest(text: str) -> int:
    return min(_widest(text), TEXT_MIN if len(text.split()) > 1 else WHOLE_MAX)


def _widest(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _shared_out(cells: Cells, least: Mapping[str, int], room: int) -> dict[str, int]:
    """Return widths that add up to `room` at most: what is wide gives way to what is narrow."""
    full = {column: max([least[column], *map(_widest, cells[column])]) for column in cells}

    def widths(most: int) -> dict[str, int]:
        return {column: min(full[column], max(least[column], most)) for column in cells}

    fitting = bisect_right(range(room + 1), room, key=lambda most: sum(widths(most).values()))
    return widths(fitting - 1)
