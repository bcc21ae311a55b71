"""The answers to questions: tables, read in a transaction that cannot write.

jsonb comes back as Python values, everything else as asyncpg gives it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import count
from typing import Final, TypeAlias

import asyncpg
import msgspec

from projections.errors import PostgresUnavailable, QueryRefused
from projections.postgres.pool import AWAY, CONNECT_S_MAX, Connection, Pool
from projections.postgres.queries import query

ROWS_MAX: Final = 10_000
"""Most rows of one answer."""

QUERY_S_MAX: Final = 30.0
"""Longest that somebody's own query may run, in seconds."""

SEVERAL_RAISED_BY: Final = "exec_parse_message"
"""The function of Postgres that refuses several statements in one, with the SQLSTATE of any syntax
error. Source: `src/backend/tcop/postgres.c`. Messages have it in every language."""

TABLES_MEANT_MAX: Final = 3
"""Most tables that are named where a statement names one that there is not."""

Row: TypeAlias = dict[str, object]

_NAME: Final = re.compile(r"\w+")

# Possessive, so that text which is a statement is found out in one go.
_NOTHING: Final = re.compile(r"(?:\s|;|--[^\n]*|(?>/\*.*?\*/))*+", re.DOTALL)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    columns: Sequence[str]
    """Each of its own name: the second `count` is called `count_2`."""
    rows: Sequence[Sequence[object]]
    is_cut: bool = False
    """There were more than `ROWS_MAX` rows."""

    def as_rows(self) -> list[Row]:
        """Return the rows as one dictionary each."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def require_statement(text: str) -> None:
    """Raise `QueryRefused` where there is no statement: Postgres answers that with nothing."""
    if _NOTHING.fullmatch(text):
        raise QueryRefused("an empty statement")
    if "\0" in text:  # guard: nul-in-statement-refused
        raise QueryRefused("a statement with a NUL byte, which no text in Postgres has")


async def answer(pool: Pool, text: str, *args: object, query_s_max: float = QUERY_S_MAX) -> Table:
    """Return the answer to one SQL statement; `$1` in it is the first of `args`.

    Raises:
        QueryRefused: it is wrong, writes, has several statements, or takes too long.
    """
    try:
        async with pool.acquire(timeout=CONNECT_S_MAX) as connection:
            return await _refusing(connection, text, *args, query_s_max=query_s_max)
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


async def _refusing(connection: Connection, text: str, *args: object, query_s_max: float) -> Table:
    try:
        async with connection.transaction(readonly=True):
            await connection.execute(query("limit_query"), str(round(query_s_max * 1000)))
            return await _table(connection, text, *args)
    except asyncpg.QueryCanceledError as error:
        raise QueryRefused(f"{error} ({query_s_max:g} s)") from error
    except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError):
        raise
    except asyncpg.UndefinedTableError as error:
        like = await _tables_like(connection, text, error)
        meant = f"; did you mean {' or '.join(like)}?" if like else ""
        raise QueryRefused(f"{_in_words(error)}{meant}") from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if connection.is_closed():
            raise
        raise QueryRefused(_in_words(error)) from error


async def _tables_like(
    connection: Connection, text: str, error: asyncpg.UndefinedTableError
) -> list[str]:
    """Return the tables and views that are called like the one that a statement names."""
    place = getattr(error, "position", None)
    named = _NAME.search(text, int(place) - 1) if place else None
    if named is None:
        return []
    there = [str(row["name"]) for row in await connection.fetch(query("list_relations"))]
    # guard: undefined-table-told
    return get_close_matches(named[0].lower(), there, n=TABLES_MEANT_MAX)


async def _table(connection: Connection, text: str, *args: object) -> Table:
    statement = await connection.prepare(text)
    attributes = statement.get_attributes()
    cursor = await statement.cursor(*args)
    rows = await cursor.fetch(ROWS_MAX + 1)
    documents = {i for i, each in enumerate(attributes) if each.type.name in {"json", "jsonb"}}
    return Table(
        columns=_told_apart([each.name for each in attributes]),
        rows=tuple(_values(row, documents) for row in rows[:ROWS_MAX]),
        is_cut=len(rows) > ROWS_MAX,
    )


def _in_words(error: asyncpg.PostgresError | asyncpg.InterfaceError) -> str:
    """Return what is wrong, and Postgres's hints, which are sentences."""
    if not isinstance(error, asyncpg.PostgresError):
        return str(error)
    if error.server_source_function == SEVERAL_RAISED_BY:
        return "one statement at a time"
    more = [str(each) for each in (error.detail, error.hint) if each]
    return " ".join([f"{error.args[0]}.", *more]) if more else str(error)


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    unique: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(2))
        free = (each for each in numbered if each not in names and each not in unique)
        unique.append(next(free) if name in unique else name)
    return tuple(unique)


def _values(row: Sequence[object], documents: set[int]) -> tuple[object, ...]:
    return tuple(
        msgspec.json.decode(value) if i in documents and isinstance(value, str) else value
        for i, value in enumerate(row)
    )
