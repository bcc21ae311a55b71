"""A verification says whether rows are what the journal says, and where they first are not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from projections.errors import (
    NotCaughtUp,
)
from projections.postgres.pool import connect
from projections.postgres.rebuild import rebuild
from projections.postgres.rebuild.rebuild import RowDifference
from tests.projections import lives
from tests.projections.conftest import SHARED
from tests.projections.lives import projecting
from tests.projections.rebuild.rebuilding import (
    When,
    projected,
    rebuilt,
    schemas,
    spoil,
    verified,
    work,
)
from tests.projections.test_projector import fill


async def test_a_verification_finds_nothing_in_right_rows(ports, pool):
    await fill(ports)
    await projected(ports, pool)
    report = await verified(ports, pool)
    assert report.difference is None
    assert report.events > 0
    assert await schemas(pool) == []


async def test_a_verification_tells_the_first_difference(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    await pool.execute("UPDATE episodes SET summary = 'wrong' WHERE stack = $1", stack.name)
    report = await verified(ports, pool)
    assert report.difference == RowDifference(
        table="episodes",
        key={"episode_id": lives.episode_id(1)},
        column="summary",
        live="wrong",
        journal="the disk is full",
        seq=9,
    )


async def test_a_verification_tells_rows_that_are_missing_or_needless(ports, pool, stack):
    await fill(ports, count=1)
    await projected(ports, pool)
    await pool.execute("DELETE FROM findings WHERE stack = $1", stack.name)
    missing = (await verified(ports, pool)).difference
    assert (missing.table, missing.column, missing.live) == ("findings", None, None)
    assert missing.journal["summary"] == "the disk is full"
    await rebuilt(ports, pool)
    await spoil(pool, stack)
    await pool.execute("UPDATE episodes SET summary = 'the disk is full'")
    found = await verified(ports, pool)
    assert {each.table for each in found.changes} == {"findings", "lane_tickets"}


async def test_a_verification_sees_one_moment_however_long_it_takes(ports, pool, postgres, stack):
    await fill(ports)
    await projected(ports, pool)

    async def change() -> None:
        async with await connect(postgres.dsn, schema=SHARED) as other:
            text = "UPDATE episodes SET summary = 'later' WHERE stack = $1"
            await other.execute(text, stack.name)

    def meanwhile() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(change()))
        thread.start()
        thread.join()

    report = await verified(ports, pool, told=When("comparing", meanwhile))
    assert report.difference is None
    assert (await verified(ports, pool)).difference.live == "later"


async def test_a_verification_while_everything_moves_finds_nothing(ports, pool):
    await fill(ports)
    is_over = asyncio.Event()

    async with projecting(ports, pool), asyncio.TaskGroup() as group:
        group.create_task(work(ports, is_over))
        for _ in range(2):
            assert (await verified(ports, pool)).difference is None
        is_over.set()


async def test_rows_that_do_not_follow_the_log_are_not_verified(ports, pool, monkeypatch):
    monkeypatch.setattr(rebuild, "LIVE_S_MAX", 0.2)
    await fill(ports)
    with pytest.raises(NotCaughtUp):
        await verified(ports, pool)
