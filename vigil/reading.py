"""Reading rows for a command: connect, ask, and say what is missing when there is nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from projections.errors import QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.queries import query
from projections.postgres.reader import run_sql
from vigil.errors import Mistake, Trouble
from vigil.settings import Reading, shown
from vigil.work import pooled

T = TypeVar("T")


def ask(reading: Reading, question: Callable[[Pool], Awaitable[T]]) -> T:
    """Return the answer of the rows to `question`.

    Raises:
        PostgresUnavailable: no server there, or it does not let us in.
        Trouble: there are no rows yet, since nothing was ever projected there.
        QueryRefused: Postgres does not run the question.
    """
    return asyncio.run(_ask(reading, question))


async def _ask(reading: Reading, question: Callable[[Pool], Awaitable[T]]) -> T:
    async with pooled(reading) as pool:
        try:
            return await question(pool)
        except QueryRefused as error:
            if await applied_migrations(pool) is not None:
                raise
            dsn = shown("postgres_dsn", reading.settings.postgres_dsn)
            raise Trouble(
                f"{dsn} holds no tables of Vigil; run `vigil project` or a node"
            ) from error


async def applied_migrations(pool: Pool) -> dict[str, str] | None:
    """Return name → checksum of what was applied to the schema; None if there is no schema."""
    try:
        found = await run_sql(pool, query("list_migrations"))
    except QueryRefused:
        return None
    return {str(name): str(checksum) for name, checksum in found.rows}


def parse_id(text: str, *, of: str = "episode") -> UUID:
    """Return the id that `text` says, which is to be that `of` something.

    Raises:
        Mistake: it says none.
    """
    try:
        return UUID(text)
    except ValueError as error:
        raise Mistake(f"{text!r} is no {of} id, such as {UUID(int=0)}") from error
