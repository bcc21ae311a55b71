"""Brings a schema to the shape this version needs.

Everything happens in one transaction under an advisory lock, so that many nodes may
start at once and a node that dies leaves the schema as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.errors import MigrationChanged
from projections.postgres.pool import Connection, Pool
from projections.postgres.queries import Migration, migrations, query


async def migrate(pool: Pool, *, wanted: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing to the pool's schema, made when missing; return its names.

    A schema that a newer version has migrated further is left as it is. Postgres's own errors pass.

    Raises:
        MigrationChanged: a migration that was applied is not the file we have.
    """
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(query("begin_migration"))
        applied = await _applied(connection)
        missing = []
        for migration in migrations() if wanted is None else wanted:
            if migration.name not in applied:
                missing.append(migration)
            elif applied[migration.name] != migration.checksum:
                schema = connection.get_settings().search_path
                raise MigrationChanged(migration.name, schema=schema)
        for migration in missing:
            await connection.execute(migration.text)
            await connection.execute(query("note_migration"), migration.name, migration.checksum)
        return [migration.name for migration in missing]


async def _applied(connection: Connection) -> dict[str, str]:
    rows = await connection.fetch(query("list_migrations"))
    return {row["name"]: row["checksum"] for row in rows}
