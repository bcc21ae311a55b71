"""A rebuild makes the rows what the journal says, while they are read and written."""

from __future__ import annotations

import asyncio

import pytest

from projections.errors import (
    ProjectorFenced,
)
from projections.postgres import store
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.queries import query
from projections.postgres.rebuild.rebuild import TableChange
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, all_rows, projecting, rows_of, wait_projected
from tests.projections.rebuild.rebuilding import (
    CLOCK,
    When,
    projected,
    publish,
    rebuilt,
    schemas,
    spoil,
    verified,
    work,
)
from tests.projections.test_projector import fill

READER_LOOKS_MIN = 20


async def test_wrong_rows_become_what_the_journal_says(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    right = await all_rows(pool, stack=stack)
    await spoil(pool, stack)

    report = await rebuilt(ports, pool)

    assert await all_rows(pool, stack=stack) == right
    assert {each.table: (each.missing, each.needless, each.wrong) for each in report.changes} == {
        "episodes": (0, 0, 5),
        "findings": (5, 0, 0),
        "lane_tickets": (0, 1, 0),
    }
    assert await schemas(pool) == []


async def test_right_rows_are_left_as_they_are(ports, pool):
    await fill(ports)
    await projected(ports, pool)
    before = await pool.fetch("SELECT xmin, * FROM episodes")

    report = await rebuilt(ports, pool)

    assert report.changes == []
    assert await pool.fetch("SELECT xmin, * FROM episodes") == before


async def test_tables_that_nobody_has_filled_are_filled_and_the_projector_goes_on(ports, pool):
    await fill(ports)
    await rebuilt(ports, pool)
    after = await all_rows(pool, stack=ports.stack)
    assert len(after["episodes"]) == 5
    await fill(ports, first=6, count=2)
    await projected(ports, pool)
    assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 7
    assert (await verified(ports, pool)).difference is None


async def test_a_dry_run_says_what_would_change_and_changes_nothing(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    await spoil(pool, stack)
    wrong = await all_rows(pool, stack=stack)

    report = await rebuilt(ports, pool, is_dry=True)

    assert TableChange(table="episodes", missing=0, needless=0, wrong=5) in report.changes
    assert await all_rows(pool, stack=stack) == wrong
    assert await schemas(pool) == []


async def test_rows_of_another_stack_are_not_touched(ports, pool, stack):
    other = memory_ports(stack=Stack(f"{stack.name}-other"), clock=SystemClock())
    await fill(ports)
    await fill(other)
    await projected(ports, pool)
    await projected(other, pool)
    await spoil(pool, stack)
    await spoil(pool, other.stack)
    texts = "SELECT xmin, ctid, * FROM {} WHERE stack = $1 ORDER BY ctid"
    tables = ("episodes", "findings", "lane_tickets", "projection_checkpoints")
    before = [await pool.fetch(texts.format(each), other.stack.name) for each in tables]

    await rebuilt(ports, pool)

    assert [await pool.fetch(texts.format(each), other.stack.name) for each in tables] == before
    assert (await verified(ports, pool)).difference is None
    assert (await verified(other, pool)).difference is not None


async def test_readers_see_no_wrong_and_no_missing_row_while_nodes_and_projector_work(
    ports, pool, stack
):
    await fill(ports, count=20)
    await projected(ports, pool)
    right = await rows_of(pool, "episodes", stack=stack)
    await pool.execute(
        "UPDATE episodes SET tokens_used = 7 WHERE stack = $1 AND tokens_used <> 7", stack.name
    )
    wrong = await rows_of(pool, "episodes", stack=stack)
    known = {each["episode_id"] for each in right}
    is_over = asyncio.Event()
    seen = []

    async def read(isolation):
        while not is_over.is_set() or len(seen) < READER_LOOKS_MIN:
            async with pool.acquire() as connection, connection.transaction(isolation=isolation):
                for _ in range(3):
                    rows = await rows_of(connection, "episodes", stack=stack)
                    seen.append([each for each in rows if each["episode_id"] in known])

    async with projecting(ports, pool), asyncio.TaskGroup() as group:
        for isolation in ("read_committed", "repeatable_read"):
            group.create_task(read(isolation))
        group.create_task(work(ports, is_over))
        report = await rebuilt(ports, pool)
        is_over.set()
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    assert TableChange(table="episodes", missing=0, needless=0, wrong=20) in report.changes
    assert len(seen) >= READER_LOOKS_MIN
    assert [each for each in seen if each not in (wrong, right)] == []
    assert (await verified(ports, pool)).difference is None


async def test_what_happens_between_comparison_and_swap_is_not_lost(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    told = When("comparing", lambda: publish(ports, 1, lives.finished()))
    told._work = lambda: publish(ports, 1, lives.opened(1), lives.started(9))
    await rebuilt(ports, pool, told=told)
    assert (await verified(ports, pool)).difference is None
    (row,) = await pool.fetch(
        "SELECT attempts FROM episodes WHERE stack = $1 AND episode_id = $2",
        stack.name,
        lives.episode_id(1),
    )
    assert row["attempts"] == 9


async def test_a_projector_that_slept_through_the_swap_is_fenced(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    since = await store.load(pool, stack=stack.name, projection="journal", now=AT)
    await fill(ports, first=6, count=1)
    await rebuilt(ports, pool)
    async with pool.acquire() as connection:
        with pytest.raises(ProjectorFenced):
            await store.apply(
                connection, [], since=since, position=since.position + 1, now=CLOCK.now()
            )


async def test_another_schema_of_the_database_is_not_touched(ports, pool, postgres):
    await fill(ports)
    async with await connect(postgres.dsn, schema="another") as another:
        await migrate(another)
        await projected(ports, another)
        await projected(ports, pool)
        await spoil(another, ports.stack)
        await rebuilt(ports, pool)
        assert (await verified(ports, another)).difference is not None
        assert await another.fetch(query("list_migrations"))
        await another.execute("DROP SCHEMA another CASCADE")
