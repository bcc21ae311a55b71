"""Questions to the rows of one stack that the demo asks and shows: the SQL in `vigil/sql`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from projections.postgres.pool import Pool
from projections.postgres.query_result import Table
from projections.postgres.reader import run_sql
from streams.subjects import Stack


async def answer(pool: Pool, stack: Stack, name: str) -> Table:
    """Return what the rows of `stack` say to the question called `name`.

    Raises:
        QueryRefused: the tables are not there yet.
        PostgresUnavailable: Postgres is away.
    """
    return await run_sql(pool, _text(name), stack.name)


def shown(name: str, stack: Stack) -> str:
    """Return the question as it can be asked again: its first line a comment that says it."""
    return _text(name).replace("$1", f"'{stack.name}'")


@cache
def _text(name: str) -> str:
    return (files("vigil") / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()
