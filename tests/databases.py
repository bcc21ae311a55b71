"""Databases for tests, in one Postgres: to make a server takes ten times as long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from projections.embedded import EmbeddedPostgres

_numbers: Final = count(1)


class Database(NamedTuple):
    """Where an empty database was made."""

    dsn: str


def database_in(server: EmbeddedPostgres) -> Database:
    """Make a database that is nobody else's."""
    name = f"test{next(_numbers)}"

    async def make() -> None:
        connection = await asyncpg.connect(server.dsn)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(make())
    return Database(urlunsplit(urlsplit(server.dsn)._replace(path=f"/{name}")))


async def hasten(server: EmbeddedPostgres) -> None:
    """Spare a server what is for the long run: to sync, and to look after its databases."""
    connection = await asyncpg.connect(server.dsn)
    for setting in ("fsync", "autovacuum"):
        await connection.execute(f"ALTER SYSTEM SET {setting} = off")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


@contextmanager
def open_directory() -> Iterator[Path]:
    """Make a directory that may be opened to others; pytest closes its own at every run."""
    with TemporaryDirectory(prefix="vigil-test-", ignore_cleanup_errors=True) as name:
        yield Path(name)
