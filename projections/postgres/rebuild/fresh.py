"""The tables beside the live ones: making them, finding them again, dropping them.

They are in a schema of their own, whose comment says what it is. One schema for each stack is being
filled at a time; what a swap has replaced is in another one until its time is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

import msgspec

from projections.postgres.pool import Connection
from projections.postgres.queries import query

LEFT_ALONE: Final = ("refusals", "work_claims")
"""Tables of what the log does not keep: they stay as they are."""

STATEMENT_S_MAX: Final = 6 * 3600.0
"""Longest that one statement about whole tables may take, in seconds."""

_DIGITS: Final = 16


class FreshNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the comment of a schema says of it."""

    stack: str
    of: str
    """The schema of the tables that people read."""
    code: str
    """Digest of the folds and the SQL that fill it: what other code has begun is begun anew."""
    began_at: datetime
    replaced_at: datetime | None = None
    """When its rows took the place of others, which it has since."""
    drop_at: datetime | None = None


class TableStatements(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild does to one table, as SQL; see `sql/rebuild/list_statements.sql`."""

    name: str
    key: Sequence[str]
    make_fresh: str
    make_differing: str
    analyze_fresh: str
    analyze_differing: str
    forget_differing: str
    find_differing: str
    note_touched: Sequence[str]
    spare_missing: str
    first_difference: str
    count_differing: str
    keep_replaced: str
    remove: str
    put: str
    drop_fresh: str
    drop_replaced: str
    name_replaced: str


class FreshTables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables beside those of a stack."""

    schema: str
    note: FreshNote
    is_resumed: bool
    tables: Mapping[str, TableStatements]
    """By name, without the checkpoints."""


def fresh_schema(of: str, stack: str) -> str:
    """Return the schema that is filled for a stack whose tables are in the schema `of`."""
    return f"vigil_rebuild_{_digest_of(of, stack)}"


def replaced_schema(of: str, stack: str, at: datetime) -> str:
    """Return the schema that keeps what was replaced at a time."""
    return f"vigil_replaced_{_digest_of(of, stack)}_{at:%Y%m%d%H%M%S%f}"


@cache
def code_digest() -> str:
    """Return what tells this version of the folds and of the SQL from others."""
    package = files("projections")
    found = [each for each in package.iterdir() if each.name.endswith(".py")]
    found += [each for each in (package / "sql").iterdir() if each.name.endswith(".sql")]
    digest = sha256()
    for file in sorted(found, key=lambda each: each.name):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:_DIGITS]


async def begin(
    connection: Connection, note: FreshNote, *, anew: bool, live: Mapping[str, str]
) -> FreshTables:
    """Return the tables beside those of a stack: as an earlier call has left them, or new ones.

    From then on `connection` finds them by their names. `live` are the migrations of the tables
    that people read: the schema is made anew if others, or other code, have begun it.
    """
    schema = fresh_schema(note.of, note.stack)
    texts = await _schema_statements(connection, schema, note)
    left = (await list_schemas(connection)).get(schema)
    code = note.code + _digest_of(*(f"{name}={text}" for name, text in sorted(live.items())))
    note = msgspec.structs.replace(note, code=code)
    # guard: other-code-begins-anew
    is_resumed = not anew and left is not None and left.code == note.code
    statements = await statements_of(connection, note.of, schema)
    if not is_resumed:
        texts = await _schema_statements(connection, schema, note)
        async with connection.transaction():
            await connection.execute(texts["remove"], timeout=STATEMENT_S_MAX)
            await connection.execute(texts["make"])
            for each in statements.values():
                await connection.execute(each.make_fresh)
                await connection.execute(each.make_differing)
            await connection.execute(texts["note"])
    await connection.execute(query("rebuild/set_search_path"), texts["search_path"])
    # They were made all the same: no statement that runs here reaches a table that people read.
    for name in (*LEFT_ALONE, "projection_checkpoints"):
        statements.pop(name, None)  # guard: claims-stay-as-they-are
    kept = left if is_resumed and left is not None else note
    return FreshTables(schema=schema, note=kept, is_resumed=is_resumed, tables=statements)


async def drop(connection: Connection, schema: str) -> None:
    """Drop a schema of a rebuild with all that it has."""
    texts = await _schema_statements(connection, schema)
    await connection.execute(texts["remove"], timeout=STATEMENT_S_MAX)


async def keep_replaced(
    connection: Connection, fresh: FreshTables, *, at: datetime, drop_at: datetime
) -> str:
    """Have the schema keep what its rows have replaced, under another name; return that."""
    note = msgspec.structs.replace(fresh.note, replaced_at=at, drop_at=drop_at)
    name = replaced_schema(note.of, note.stack, at)
    texts = await _schema_statements(connection, fresh.schema, note, name)
    await connection.execute(texts["note"])
    await connection.execute(texts["rename"])
    return name


async def drop_expired(connection: Connection, *, now: datetime) -> Sequence[str]:
    """Drop the schemas whose time is over, and return them."""
    expired = [
        name
        for name, note in (await list_schemas(connection)).items()
        if note.drop_at is not None and note.drop_at <= now  # guard: replaced-rows-kept-on
    ]
    for name in expired:
        await drop(connection, name)
    return expired


async def list_schemas(connection: Connection) -> dict[str, FreshNote]:
    """Return what there is of rebuilds in the database, by schema."""
    found: dict[str, FreshNote] = {}
    for row in await connection.fetch(query("rebuild/list_schemas")):
        try:
            found[row["name"]] = msgspec.json.decode(row["note"], type=FreshNote)
        except msgspec.MsgspecError:  # Somebody else's schema, by its comment.
            continue
    return found


async def statements_of(connection: Connection, of: str, schema: str) -> dict[str, TableStatements]:
    """Return what is done to each table of the schema `of` that has rows of stacks, by name."""
    rows = await connection.fetch(query("rebuild/list_statements"), of, schema)
    return {row["name"]: msgspec.convert(dict(row), TableStatements) for row in rows}


async def _schema_statements(
    connection: Connection, schema: str, note: FreshNote | None = None, name: str = ""
) -> Mapping[str, str]:
    said = "" if note is None else msgspec.json.encode(note).decode()
    of = "" if note is None else note.of
    row = await connection.fetchrow(query("rebuild/schema_statements"), schema, said, name, of)
    assert row is not None  # One row without FROM.
    return dict(row)


def _digest_of(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()[:_DIGITS]
