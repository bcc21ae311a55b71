"""Rows that are made from an archive and what is live are the rows that there were before."""

from __future__ import annotations

import pytest

from engine.archive.run import ArchivePlan, KnownRows, archive_once
from projections.postgres.pool import connect
from projections.postgres.progress import known_positions
from streams.archive.archive import Archive
from streams.archive.history import with_history
from streams.archive.memory import MemoryArchive
from streams.archive.segment import SegmentLimits
from streams.clock import SystemClock
from streams.layout import Stream
from tests.followed import note_followed
from tests.projections import lives
from tests.projections.lives import all_rows, append, projecting, rows_of, wait_projected
from tests.projections.test_projector import fill

PLAN = ArchivePlan(hot_s=0, limits=SegmentLimits(messages_max=9, block_bytes=500))


async def archived(ports, pool) -> Archive:
    """Archive and purge what the rows have; return the archive."""
    archive = Archive(MemoryArchive(), ports.stack)
    await note_followed(ports)
    rows = KnownRows(positions=await known_positions(pool, ports.stack))
    report = await archive_once(ports, archive, PLAN, rows=rows, node="n1", clock=SystemClock())
    assert report is not None
    assert all(part.purged.messages for part in report.parts)
    return archive


def whole(ports, archive: Archive | None):
    async def find() -> Archive | None:
        return archive

    return with_history(ports, find)


async def test_rows_are_made_again_from_archive_and_journal(ports, bare_pool, postgres, schema):
    """I6."""
    await fill(ports, count=3)
    async with projecting(ports, bare_pool):
        await wait_projected(ports, bare_pool)
        archive = await archived(ports, bare_pool)
        await fill(ports, first=4, count=2)
        await wait_projected(ports, bare_pool)
    rebuilt = await connect(postgres.dsn, schema=f"{schema}_rebuilt")
    async with projecting(whole(ports, archive), rebuilt, node="n2"):
        await wait_projected(ports, rebuilt)
    assert await all_rows(rebuilt, stack=ports.stack) == await all_rows(
        bare_pool, stack=ports.stack
    )
    await rebuilt.close()


@pytest.mark.parametrize("is_open", [True, False])
async def test_rows_hold_the_floor_until_they_have_it(ports, bare_pool, is_open):
    await fill(ports, count=1)
    if is_open:
        await append(ports.log, ports.stack.episode(lives.episode_id(9)), (lives.opened(9),))
    async with projecting(ports, bare_pool):
        await wait_projected(ports, bare_pool)
        await archived(ports, bare_pool)
    assert len(await rows_of(bare_pool, "episodes", stack=ports.stack)) == 1 + is_open


async def test_without_the_archive_no_rows_are_made_that_lack_the_past(
    ports, bare_pool, postgres, schema
):
    await fill(ports, count=2)
    async with projecting(ports, bare_pool):
        await wait_projected(ports, bare_pool)
        await archived(ports, bare_pool)
        await fill(ports, first=3, count=1)
    rebuilt = await connect(postgres.dsn, schema=f"{schema}_rebuilt")
    async with projecting(whole(ports, None), rebuilt, node="n2"):
        await wait_projected(ports, rebuilt, Stream.STATE)
        assert await rows_of(rebuilt, "episodes", stack=ports.stack) == []
    await rebuilt.close()
