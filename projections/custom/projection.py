"""What a projection of a user is: tables, and the changes that an event asks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

import msgspec

from projections.errors import BadProjection
from streams.model.events import LogEvent

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")

OURS: Final = frozenset({"stack", "projection_checkpoints"})
"""Names of a column and a table that every projection has already."""


class OwnTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a projection. Every row also has its `stack`, the first column of its key."""

    key: Mapping[str, str]
    """Column → its type in Postgres, of what names a row within a stack."""
    columns: Mapping[str, str]
    """The other columns, as `bigint NOT NULL DEFAULT 0`."""


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Set columns of a row, which is made if it is not there. Others stay as they are."""

    table: str
    key: Mapping[str, object]
    values: Mapping[str, object]


class Add(msgspec.Struct, frozen=True, kw_only=True):
    """Add to columns of a row, which is made if it is not there; what is NULL counts as 0."""

    table: str
    key: Mapping[str, object]
    amounts: Mapping[str, float]


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Take a row away, if it is there."""

    table: str
    key: Mapping[str, object]


Change: TypeAlias = Put | Add | Remove


class ProjectedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the journal, the state or the dead letters, and its place there."""

    stack: str
    kind: str
    """What it is about: `episode`, `finding`, `output`, `workflow` and so on."""
    key: str
    """Which one: the id of an episode, the key of a finding."""
    name: str
    """Such as `episode.finished`."""
    event: LogEvent
    """Its fields. They are not redacted: what people may not see has no place in a table."""
    at: datetime
    seq: int
    number: int
    """Its position within its commit, from 0."""


class Projection(Protocol):
    """Tables of one's own, filled from the journal."""

    @property
    def name(self) -> str:
        """Names its schema, `vigil_own_<name>`, and its lease."""

    @property
    def tables(self) -> Mapping[str, OwnTable]:
        """Name → table."""

    def project(self, event: ProjectedEvent) -> Iterable[Change]:
        """Return what an event changes. The same event always asks for the same changes."""


def check(projection: Projection) -> None:
    """Raise `BadProjection` if a projection declares what cannot be."""
    if not _NAME.fullmatch(projection.name):
        raise BadProjection(f"projection {projection.name!r}: use 1 to 40 of a-z 0-9 _, a-z first")
    if not projection.tables:
        raise BadProjection(f"projection {projection.name}: it has no tables")
    for name, table in projection.tables.items():
        if not table.key:
            raise BadProjection(f"table {name}: its key has no column")
        words = (name, *table.key, *table.columns)
        strange = [each for each in words if not _NAME.fullmatch(each) or each in OURS]
        double = sorted(table.key.keys() & table.columns.keys())
        if strange or double:
            found = (strange + double)[0]
            raise BadProjection(f"table {name}: {found!r} cannot be the name of a table or column")


def schema_of(name: str) -> str:
    """Return the schema of a projection."""
    return f"vigil_own_{name}"


def shape_of(projection: Projection) -> str:
    """Return what tells the tables of a projection from others."""
    tables = {
        name: [sorted(table.key.items()), sorted(table.columns.items())]
        for name, table in sorted(projection.tables.items())
    }
    return sha256(msgspec.json.encode(tables)).hexdigest()[:16]
