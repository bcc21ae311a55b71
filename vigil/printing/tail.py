"""How a log is printed as it grows: its lines, and between them what models answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TextIO

from streams.model.deltas import DELTA, DeltaEnd
from vigil.printing.tables import printable

LOST: Final = "[…]"
"""Stands where a piece of an answer was lost; its step has all of it."""


class TailPrinter:
    """Prints rows of a log and deltas. In place, an answer grows on the terminal; else by lines."""

    def __init__(self, stream: TextIO, *, is_in_place: bool) -> None:
        self._stream, self._is_in_place = stream, is_in_place
        self._held: dict[str, str] = {}
        """By path, the beginning of a line that is not printed yet."""
        self._growing = ""
        """The path of the answer that the cursor is behind; empty: it begins a line."""

    def show(self, row: Mapping[str, object]) -> None:
        """Print a line of the log, or the next piece of an answer."""
        if row.get("kind") == DELTA:
            self._tell(row)
        else:
            self._begin_line()
            self._put(f"{row['line']}\n")

    def close(self) -> None:
        """Print what is left of answers that nobody has ended."""
        self._begin_line()
        for path, held in self._held.items():
            self._put(f"{path}: {held}\n" if held else "")
        self._held.clear()

    def _tell(self, row: Mapping[str, object]) -> None:
        path, said = str(row["path"]), str(row["text"])
        if row["is_anew"]:
            self._held.pop(path, None)
            self._begin_line()
            said = f"[attempt {row['attempt']}] {said}"
        elif row["missing"]:
            said = f"{LOST}{said}"
        tools = row["tools"]
        assert isinstance(tools, list)
        said += "".join(f" [calls {each}]" for each in tools)
        said += " [failed]" if row["end"] == DeltaEnd.FAILED else ""
        if self._is_in_place:
            self._grow(path, said, is_last=row["end"] is not None)
        else:
            self._hold(path, said, is_last=row["end"] is not None)

    def _grow(self, path: str, said: str, *, is_last: bool) -> None:
        if said and self._growing != path:
            self._begin_line()
            said, self._growing = f"{path}: {said}", path
        self._put(said)
        if is_last and self._growing == path:
            self._begin_line()

    def _hold(self, path: str, said: str, *, is_last: bool) -> None:
        *lines, rest = (self._held.pop(path, "") + said).split("\n")
        lines += [rest] if is_last and rest else []
        for each in lines:
            self._put(f"{path}: {each}\n")
        if not is_last:
            self._held[path] = rest

    def _begin_line(self) -> None:
        if self._growing:
            self._put("\n")
            self._growing = ""

    def _put(self, text: str) -> None:
        self._stream.write(printable(text))
        self._stream.flush()
