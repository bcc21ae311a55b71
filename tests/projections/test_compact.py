"""The room of rows that have left goes back to the disk, while people read and projectors write."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import msgspec
import pytest

from projections.errors import PostgresUnavailable
from projections.postgres import compact as compacting
from projections.postgres.compact import compact, compact_for_ever, list_room
from projections.postgres.pool import connect
from projections.postgres.prune import prune
from streams.model.events import RowsCut
from streams.model.retention import RetentionCut, RetentionField
from tests.projections.lives import (
    HurriedClock,
    all_rows,
    projecting,
    rows_of,
    wait_projected,
    wait_until,
    write_events,
)
from tests.projections.rebuild.rebuilding import verified
from tests.projections.test_projector import fill

CLOCK = HurriedClock()
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/retention.md"
WEEK = (ROOT / "bench/lists.sql").read_text()
NOW = datetime(2030, 1, 8, tzinfo=UTC)
EPISODES = 3_000
MOST_ROWS_LEAVE = """
WITH gone AS (
    DELETE FROM episodes
    WHERE journal_seq < $1 AND finished_at IS NOT NULL AND actor_id <> 'actor-7'
    RETURNING episode_id
)
DELETE FROM episode_steps USING gone WHERE episode_steps.episode_id = gone.episode_id
"""
WAITS = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = $1 AND relation = $2::regclass",
    "ExclusiveLock",
    "projection_checkpoints",
)
TORN = """
SELECT count(*), count(DISTINCT episode_id), count(step_no)
FROM episodes LEFT JOIN episode_steps USING (stack, episode_id)
"""
HALF_MADE = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"


async def fill_week(pool, stack):
    await pool.execute(WEEK, stack.name, EPISODES, NOW)
    await pool.execute("VACUUM ANALYZE")


@pytest.fixture(autouse=True)
def _little_is_worth_it(monkeypatch):
    monkeypatch.setattr(compacting, "ROOM_BYTES_MIN", 200_000)


@pytest.fixture
async def emptied(own_pool, stack):
    """Tables of a week, most of whose rows have left."""
    await fill_week(own_pool, stack)
    await own_pool.execute(MOST_ROWS_LEAVE, EPISODES * 9 // 10)
    await own_pool.execute("VACUUM ANALYZE episodes, episode_steps")
    return own_pool


async def given_back(pool):
    return await compact(pool, clock=CLOCK)


async def sizes(pool):
    return {each.name: each.size_bytes for each in await list_room(pool)}


async def test_tables_that_are_half_empty_shrink_and_have_the_rows_they_had(emptied, stack):
    before, rows = await sizes(emptied), await all_rows(emptied, stack=stack)
    given = await given_back(emptied)
    after = await sizes(emptied)
    assert given.keys() == {"episodes", "episode_steps"}
    for table, count in given.items():
        assert count == before[table] - after[table]
        assert after[table] < 0.35 * before[table]
    assert await all_rows(emptied, stack=stack) == rows
    assert await given_back(emptied) == {}


async def test_what_is_as_good_as_full_or_has_little_room_stays_as_it_is(
    own_pool, stack, monkeypatch
):
    await fill_week(own_pool, stack)
    assert await given_back(own_pool) == {}
    await own_pool.execute(MOST_ROWS_LEAVE, EPISODES * 9 // 10)
    await own_pool.execute("VACUUM ANALYZE")
    monkeypatch.setattr(compacting, "ROOM_BYTES_MIN", 64 * 1024 * 1024)
    assert await given_back(own_pool) == {}


async def test_how_full_a_table_is_follows_from_what_postgres_counts(own_pool, stack):
    await fill_week(own_pool, stack)
    for room in await list_room(own_pool):
        if room.size_bytes > 200_000:
            assert room.empty_bytes < 0.35 * room.size_bytes, room.name
    await own_pool.execute("DELETE FROM episode_steps")
    await own_pool.execute("INSERT INTO episode_steps SELECT * FROM episode_steps")
    (steps,) = [each for each in await list_room(own_pool) if each.name == "episode_steps"]
    await own_pool.execute("ANALYZE episode_steps")
    (later,) = [each for each in await list_room(own_pool) if each.name == "episode_steps"]
    assert later.empty_bytes > 0.9 * later.size_bytes > steps.empty_bytes


async def test_rows_before_the_room_stay_where_they_are(emptied, monkeypatch):
    monkeypatch.setattr(compacting, "SLICE_PAGES", 4)
    first = "SELECT episode_id, ctid FROM episodes WHERE ctid < '(4,0)' ORDER BY ctid"
    before = await emptied.fetch(first)
    await given_back(emptied)
    assert before
    assert set(before) <= set(await emptied.fetch(first))


async def test_what_retention_lets_go_gives_the_disk_back(ports, own_pool, stack):
    await fill_week(own_pool, stack)
    before = await sizes(own_pool)
    cut = RetentionCut(what=RetentionField.DONE, actor_id="", before=NOW)
    await write_events(
        own_pool, RowsCut(cuts=(cut,), by="n1"), stack=stack, subject=stack.order("cuts")
    )
    await prune(ports, own_pool, clock=CLOCK)
    left = await rows_of(own_pool, "episodes", stack=stack)
    await own_pool.execute("VACUUM ANALYZE")
    assert (await given_back(own_pool)).keys() >= {"episodes", "episode_steps"}
    assert (await sizes(own_pool))["episodes"] < 0.4 * before["episodes"]
    assert await rows_of(own_pool, "episodes", stack=stack) == left
    assert len(left) > 0.03 * EPISODES


async def test_a_reader_in_a_loop_sees_every_row_once(emptied):
    expected, looks = await emptied.fetchrow(TORN), 0
    giving = asyncio.create_task(given_back(emptied))
    while not giving.done():
        assert await emptied.fetchrow(TORN) == expected
        looks += 1
    assert (await giving).keys() == {"episodes", "episode_steps"}
    assert looks > 3


@asynccontextmanager
async def reading(pool):
    """Keep a transaction open that has read the tables and may read them again."""
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read"),
    ):
        rows = await connection.fetchrow(TORN)
        yield
        assert await connection.fetchrow(TORN) == rows


async def test_a_reader_that_reads_for_long_holds_up_nobody_but_what_gives_back(
    ports, emptied, stack
):
    before = await sizes(emptied)
    async with reading(emptied):
        giving = asyncio.create_task(given_back(emptied))
        await wait_until(lambda: is_remaking(emptied))
        await fill(ports, count=2)
        async with projecting(ports, emptied):
            await wait_projected(ports, emptied)
        async with asyncio.timeout(5):
            await emptied.fetchrow(TORN)
        assert not giving.done()
    await giving
    assert await emptied.fetchval(HALF_MADE) == 0
    # What the reader saw could not be cut off yet; the next pass does it.
    await given_back(emptied)
    assert (await sizes(emptied))["episode_steps"] < before["episode_steps"] / 2


async def is_remaking(pool):
    return await pool.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index"
        " WHERE command = 'REINDEX CONCURRENTLY' AND phase LIKE 'waiting%')"
    )


async def test_a_slice_moves_while_nobody_writes_so_no_update_misses_a_row(
    ports, emptied, stack, monkeypatch
):
    """An update that waits for a row finds that it is gone, and is done."""
    monkeypatch.setattr(compacting, "WAIT", "30s")
    monkeypatch.setattr(compacting, "HOLD", "30s")
    async with projecting(ports, emptied):
        await wait_projected(ports, emptied)
    async with emptied.acquire() as projector:
        async with projector.transaction():
            await projector.execute("UPDATE projection_checkpoints SET updated_at = now()")
            giving = asyncio.create_task(given_back(emptied))
            await wait_until(lambda: emptied.fetchval(*WAITS))
            changed = await projector.execute("UPDATE episodes SET attempts = attempts + 7")
        await giving
    left = await rows_of(emptied, "episodes", stack=stack)
    assert changed == f"UPDATE {len(left)}"
    assert all(row["attempts"] >= 7 for row in left)


async def test_what_projectors_write_meanwhile_is_what_the_log_says(
    ports, emptied, postgres, schema
):
    """I6, with rows that are opened, go on and end while they move."""
    before, first = await sizes(emptied), 1
    async with projecting(ports, emptied):
        while (await sizes(emptied))["episodes"] > before["episodes"] / 2:
            await fill(ports, first=first, count=2)
            await wait_projected(ports, emptied)
            first += 2
    anew = await connect(postgres.dsn, schema=f"{schema}_anew")
    async with projecting(ports, anew, node="n2"):
        await wait_projected(ports, anew)
    await emptied.execute("DELETE FROM episodes WHERE actor_id LIKE 'actor-%'")
    await emptied.execute(
        "DELETE FROM episode_steps AS step WHERE NOT EXISTS"
        " (SELECT FROM episodes WHERE episode_id = step.episode_id)"
    )
    for table in ("episodes", "episode_steps", "episode_checkpoints"):
        made = await rows_of(anew, table, stack=ports.stack)
        assert made == await rows_of(emptied, table, stack=ports.stack)
    await anew.close()


async def test_a_verification_finds_that_nothing_has_changed(ports, own_pool, stack, monkeypatch):
    monkeypatch.setattr(compacting, "EMPTY_MIN", 0.0)
    monkeypatch.setattr(compacting, "ROOM_BYTES_MIN", 0)
    await fill(ports, count=12)
    async with projecting(ports, own_pool):
        await wait_projected(ports, own_pool)
    await own_pool.execute("VACUUM ANALYZE")
    verifying = asyncio.create_task(verified(ports, own_pool))
    assert "episodes" in await given_back(own_pool)
    assert (await verifying).difference is None
    assert (await verified(ports, own_pool)).difference is None


async def test_a_slice_that_takes_too_long_is_halved_until_the_table_is_left_as_it_is(
    emptied, stack, monkeypatch
):
    monkeypatch.setattr(compacting, "HOLD", "400ms")
    tried = []

    async def move(connection, table, begin, end):
        tried.append((table.name, end - begin))
        text = "SELECT $1::tid, $2::tid, pg_sleep(5)"
        return await moved(connection, msgspec.structs.replace(table, move=text), begin, end)

    moved = compacting._move_slice
    monkeypatch.setattr(compacting, "_move_slice", move)
    before = await rows_of(emptied, "episodes", stack=stack)
    await given_back(emptied)
    assert [pages for name, pages in tried if name == "episodes"] == [16, 8, 4, 2, 1]
    assert await rows_of(emptied, "episodes", stack=stack) == before


async def test_a_slice_waits_briefly_for_who_writes_for_long_and_tries_again(
    ports, emptied, monkeypatch
):
    monkeypatch.setattr(compacting, "WAIT", "20ms")
    async with projecting(ports, emptied):
        await wait_projected(ports, emptied)
    async with emptied.acquire() as swap, swap.transaction():
        await swap.execute("SELECT FROM projection_checkpoints FOR UPDATE")
        async with asyncio.timeout(20):
            with pytest.raises(PostgresUnavailable, match="lock timeout"):
                await given_back(emptied)
        monkeypatch.setattr(compacting, "TRIES_MAX", 1_000)
        giving = asyncio.create_task(given_back(emptied))
        await wait_until(lambda: emptied.fetchval(*WAITS))
    assert "episodes" in await giving


async def test_an_index_that_an_interrupted_pass_has_left_half_made_goes(emptied):
    async with reading(emptied):
        with pytest.raises(TimeoutError):
            await emptied.execute("REINDEX INDEX CONCURRENTLY episodes_by_status", timeout=0.5)
    assert await emptied.fetchval(HALF_MADE) > 0
    names = "SELECT indexname FROM pg_indexes WHERE tablename = 'episodes' AND schemaname = $1"
    schema = await emptied.fetchval("SELECT current_schema()")
    await given_back(emptied)
    assert await emptied.fetchval(HALF_MADE) == 0
    assert not [name for (name,) in await emptied.fetch(names, schema) if "_cc" in name]


async def test_only_one_gives_back_at_a_time(emptied):
    both = await asyncio.gather(given_back(emptied), given_back(emptied))
    assert sorted(map(len, both)) == [0, 2]


async def test_tables_of_somebody_else_stay_as_they_are(emptied, postgres, schema):
    async with emptied.acquire() as owner:
        await owner.execute(
            f"CREATE ROLE writer_{schema} LOGIN BYPASSRLS;"
            f"GRANT USAGE ON SCHEMA {schema} TO writer_{schema};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO writer_{schema}"
        )
    dsn = postgres.dsn.replace("postgres@", f"writer_{schema}@")
    async with await connect(dsn, schema=schema) as pool:
        rooms = {each.name: each for each in await list_room(pool)}
        assert not rooms["episodes"].is_ours
        assert rooms["episodes"].empty_bytes > rooms["episodes"].size_bytes / 2
        assert await given_back(pool) == {}


async def test_what_the_guide_has_for_a_quiet_time_gives_everything_back(emptied, schema):
    (text,) = re.findall("`(VACUUM.*?)`", GUIDE.read_text())
    before = await sizes(emptied)
    await emptied.execute(f"{text} {schema}.episodes")
    assert (await sizes(emptied))["episodes"] < 0.35 * before["episodes"]


async def test_a_projector_looks_again_and_again(ports, emptied):
    before = (await sizes(emptied))["episodes"]

    async def has_shrunk():
        return (await sizes(emptied))["episodes"] < before / 2

    looking = asyncio.create_task(compact_for_ever(ports, emptied, CLOCK))
    await wait_until(has_shrunk)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking


async def test_a_postgres_that_is_away_is_said():
    pool = await asyncpg.create_pool("postgresql://127.0.0.1:1/none", min_size=0)
    with pytest.raises(PostgresUnavailable):
        await compact(pool, clock=CLOCK)
    with pytest.raises(PostgresUnavailable):
        await list_room(pool)
    await pool.close()
