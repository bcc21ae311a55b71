"""Brings a schema to the shape this version needs.

Everything happens in one transaction under an advisory lock, so that many nodes may
start at once and a node that dies leaves the schema as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from projections.errors import MigrationChanged, MigrationUnknown
from projections.postgres.pool import Connection, Pool
from projections.postgres.queries import Migration, migrations, query


class Difference(msgspec.Struct, frozen=True):
    """How the migrations that made a schema differ from those that are wanted."""

    missing: Sequence[Migration]
    """Those to apply, in order."""
    changed: Sequence[str]
    """Names of those that were applied with another text."""
    unknown: Sequence[str]
    """Names of those that were applied and are not wanted, if any is missing. A version has all
    migrations of the one before it, so what a newer one has applied is no difference."""


def difference(applied: Mapping[str, str], wanted: Sequence[Migration]) -> Difference:
    """Return how the migrations in `applied`, name → checksum, differ from those `wanted`."""
    missing = [each for each in wanted if each.name not in applied]
    there = [each for each in wanted if each.name in applied]
    others = sorted(applied.keys() - {each.name for each in wanted})
    return Difference(
        missing=missing,
        changed=[each.name for each in there if each.checksum != applied[each.name]],
        unknown=others if missing else [],  # guard: unknown-migration-refused
    )


async def migrate(pool: Pool, *, wanted: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing to the pool's schema, made when missing; return its names.

    A schema that a newer version has migrated further is left as it is. Postgres's own errors pass.

    Raises:
        MigrationChanged: a migration that was applied is not the file we have.
        MigrationUnknown: the schema has a migration that is none of ours, and lacks one of ours.
    """
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(query("begin_migration"))
        schema = connection.get_settings().search_path
        found = difference(
            await applied_migrations(connection), migrations() if wanted is None else wanted
        )
        if found.changed:
            raise MigrationChanged(found.changed[0], schema=schema)
        if found.unknown:
            raise MigrationUnknown(found.unknown[0], lacks=found.missing[0].name, schema=schema)
        for migration in found.missing:
            await connection.execute(migration.text)
            await connection.execute(query("note_migration"), migration.name, migration.checksum)
        return [migration.name for migration in found.missing]


async def applied_migrations(connection: Connection) -> dict[str, str]:
    """Return the migrations of the schema, name → checksum; Postgres's own errors pass."""
    rows = await connection.fetch(query("list_migrations"))
    return {row["name"]: row["checksum"] for row in rows}
