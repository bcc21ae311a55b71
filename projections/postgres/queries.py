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
def migrations() -> tuple[Migration, ...]:
    """Return every migration, in order."""
    found = [file for file in (_SQL / "migrations").iterdir() if file.name.endswith(".sql")]
    named = sorted((file.name, _text_of(file)) for file in found)
    return tuple(Migration(name, text) for name, text in named)


def _text_of(file: Traversable) -> str:
    return _MARKER.sub("", file.read_text(encoding="utf-8"))
