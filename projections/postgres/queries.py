"""The SQL of `projections/sql`, by name."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

_SQL: Final = files("projections") / "sql"

_MARKER: Final = re.compile(r"^ *-- guard: .*\n| +-- guard: .*$", re.MULTILINE)
"""What marks a guard for `tests/mutants.py`. It is no part of the text: a migration that gets one
is the same migration."""


_WAY: Final = re.compile(r"^(.*\S) *-- way$", re.MULTILINE)
"""A line of a list that says which way it goes."""

_ONE_WAY: Final = re.compile(r"^.* -- one way$|^ *-- other way: ", re.MULTILINE)

_TURNED: Final = {
    "<": ">", ">": "<", "<=": ">=", ">=": "<=", "DESC": "ASC", "ASC": "DESC", "FIRST": "LAST",
    "LAST": "FIRST",
}  # fmt: skip
_TURNING: Final = re.compile(r"[<>]=?|\b(?:DESC|ASC|FIRST|LAST)\b")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema's making."""

    name: str
    """Its file's name; the order of names is the order of application."""
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return sha256(self.text.encode()).hexdigest()


@cache
def query(name: str) -> str:
    """Return the text of the query called `name`."""
    return _text_of(_SQL / f"{name}.sql")


@cache
def reversed_query(name: str) -> str:
    """Return the text of the list called `name`, from its other end: of pages, too.

    What says which way a list goes stands on lines that end with `-- way`, each column with `ASC`
    or `DESC`; nothing else there has a word or a sign that turns around. A line that ends with
    `-- one way` is left out, and what follows `-- other way:` is put in.
    """
    return _ONE_WAY.sub("", _WAY.sub(_turned, query(name)))


def _turned(line: re.Match[str]) -> str:
    return _TURNING.sub(lambda word: _TURNED[word[0]], line[1])


@cache
def migrations() -> tuple[Migration, ...]:
    """Return every migration, in order."""
    found = [file for file in (_SQL / "migrations").iterdir() if file.name.endswith(".sql")]
    named = sorted((file.name, _text_of(file)) for file in found)
    return tuple(Migration(name, text) for name, text in named)


def _text_of(file: Traversable) -> str:
    return _MARKER.sub("", file.read_text(encoding="utf-8"))
