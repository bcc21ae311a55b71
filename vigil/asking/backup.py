"""Backups of a stack, and restoring one with its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from projections.errors import PostgresUnavailable
from projections.postgres import store
from projections.postgres.progress import known_positions
from streams.clock import SystemClock
from streams.jetstream.backup.create import Tell, create_backup
from streams.jetstream.backup.files import StoredBackup, read_backup, verify
from streams.jetstream.backup.restore import restore_backup
from vigil.asking.connect import link_settings, pooled
from vigil.errors import Trouble
from vigil.settings import Config

_CLOCK: Final = SystemClock()

NO_ROWS: Final = (
    "Postgres is away, so its tables are as they were: before a node starts, run `vigil backup "
    "restore` again with it, or drop the schema vigil"
)
ROWS_AGAIN: Final = (
    "tables are filled again from the beginning; rows of what came after the backup stay in them "
    "until they are dropped"
)


async def create(config: Config, folder: Path, *, is_incremental: bool, tell: Tell) -> StoredBackup:
    """Write a backup below `folder`; raise `Trouble` if that cannot be written."""
    url, link = config.settings.nats_url, link_settings(config)
    try:
        return await create_backup(
            url,
            stack=config.stack,
            folder=folder,
            is_incremental=is_incremental,
            tell=tell,
            settings=link,
        )
    except OSError as error:
        raise Trouble(f"{folder}: {error}", remedy="make room, or choose another folder") from error


def verified(folder: Path) -> StoredBackup:
    """Return a backup whose files are as they were written; `Incompatible`: they are not."""
    try:
        found = read_backup(folder)
        verify(found)
    except OSError as error:
        raise Trouble(f"{folder}: {error}") from error
    return found


async def restore(config: Config, backup: StoredBackup, *, replaces: bool, tell: Tell) -> str:
    """Make the stack of a backup; return what is to be known of its tables, empty if nothing."""
    url, link = config.settings.nats_url, link_settings(config)
    done = await restore_backup(url, backup=backup, replaces=replaces, tell=tell, settings=link)
    return await _begin_rows_again(config, done.positions)


async def _begin_rows_again(config: Config, parts: Mapping[str, int]) -> str:
    """Have projectors begin at the first commit: rows may show another past than the log has."""
    try:
        async with pooled(config) as pool:
            known = await known_positions(pool, config.stack)
            again = {part: 0 for part in known if part in parts}  # guard: restored-rows-begin-again
            if not again:
                return ""
            await store.resume(pool, stack=config.stack.name, positions=again, now=_CLOCK.now())
            return ROWS_AGAIN
    except PostgresUnavailable:
        return NO_ROWS
