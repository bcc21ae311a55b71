"""A rebuild makes the rows what the journal says, while they are read and written."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from projections.errors import (
    NotCaughtUp,
    NotMigrated,
    OtherHistory,
    ProjectorFenced,
    RebuildRunning,
)
from projections.postgres import store
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.queries import query
from projections.postgres.rebuild import fresh, rebuild
from projections.postgres.rebuild.catch_up import TouchedRows, key_of
from projections.postgres.rebuild.rebuild import RowDifference, TableChange
from projections.rows import Row, RowChange, Statement
from streams.clock import SystemClock
from streams.history import LogHistory
from streams.layout import Stream
from streams.memory import memory_ports
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER
from tests.projections import lives
from tests.projections.conftest import SHARED
from tests.projections.lives import AT, all_rows, append, projecting, rows_of, wait_projected
from tests.projections.rebuild.rebuilding import CLOCK, rebuilt, schemas, spoil, verified
from tests.projections.test_projector import fill

READER_LOOKS_MIN = 20


async def projected(ports, pool):
    async with projecting(ports, pool):
        await wait_projected(ports, pool)


def publish(ports, number, *events):
    """Put a commit on an episode at once, without waiting."""
    made = lives.commit(*events, name=f"late-{number}-{len(events)}")
    subject = ports.stack.episode(lives.episode_id(number))
    ports.log.publish_raw(subject, codec.encode_commit(made), {COMMIT_HEADER: made.id})


class When(list):
    """Does something at the first moment of a stage, as the rebuild tells of it."""

    def __init__(self, stage, work):
        super().__init__()
        self._stage, self._work = stage, work

    def append(self, progress):
        super().append(progress)
        if progress.stage == self._stage and self._work is not None:
            work, self._work = self._work, None
            work()


class Killed(BaseException):
    """The end of a process, at a moment of its own choosing."""


def die():
    raise Killed


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
    texts = "SELECT xmin, ctid, * FROM {} WHERE stack = $1"
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

    async def work():
        number = 100
        while not is_over.is_set():
            number += 1
            await fill(ports, first=number, count=1)
            await CLOCK.sleep(0.001)

    async with projecting(ports, pool), asyncio.TaskGroup() as group:
        for isolation in ("read_committed", "repeatable_read"):
            group.create_task(read(isolation))
        group.create_task(work())
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


async def test_a_rebuild_that_died_goes_on_where_it_was(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    await spoil(pool, stack)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    assert len(await schemas(pool)) == 1

    told = []
    report = await rebuilt(ports, pool, told=told)

    assert report.is_resumed
    assert report.events == 0
    assert (await verified(ports, pool)).difference is None


@pytest.mark.parametrize("stage", ["reading", "comparing", "swapping"])
async def test_a_rebuild_that_dies_at_any_stage_leaves_the_rows_to_the_next(
    ports, pool, stack, stage
):
    await fill(ports)
    await projected(ports, pool)
    await spoil(pool, stack)
    wrong = await all_rows(pool, stack=stack)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When(stage, die))
    assert await all_rows(pool, stack=stack) == wrong
    await rebuilt(ports, pool)
    assert (await verified(ports, pool)).difference is None
    assert await schemas(pool) == []


async def test_what_other_code_has_begun_is_begun_anew(ports, pool, monkeypatch):
    await fill(ports)
    await projected(ports, pool)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    monkeypatch.setattr(fresh, "code_digest", lambda: "of another version")
    report = await rebuilt(ports, pool)
    assert not report.is_resumed
    assert report.events > 0


async def test_anew_means_from_the_beginning(ports, pool):
    await fill(ports)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    report = await rebuilt(ports, pool, anew=True)
    assert not report.is_resumed
    assert report.events > 0


async def test_an_unfinished_rebuild_of_another_log_is_refused(ports, pool, stack):
    await fill(ports, count=1)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    other = memory_ports(stack=stack, clock=SystemClock())
    subject = stack.episode(lives.episode_id(9))
    await append(other.log, subject, (lives.opened(9),), *lives.WHOLE_LIFE[1:])
    for _ in range(5):
        await append(other.log, subject, (lives.started(3),), (lives.finished(),))
    with pytest.raises(OtherHistory, match="begin anew with --anew"):
        await rebuilt(other, pool)
    await rebuilt(other, pool, anew=True)


async def test_of_two_rebuilds_of_one_stack_the_second_is_refused(ports, pool):
    await fill(ports)
    refused = []

    class Second(list):
        def append(self, progress):
            super().append(progress)
            if progress.stage == "reading" and not refused:
                refused.append(asyncio.ensure_future(rebuilt(ports, pool)))

    await rebuilt(ports, pool, told=Second())
    with pytest.raises(RebuildRunning):
        await refused[0]


async def test_what_was_replaced_is_kept_until_its_time_is_over(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    await spoil(pool, stack)

    report = await rebuilt(ports, pool, keep_s=3600)

    assert report.replaced_in is not None
    kept = await pool.fetch(f"SELECT summary FROM {report.replaced_in}.episodes")  # noqa: S608 - our own
    assert [each["summary"] for each in kept] == ["wrong"] * 5
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1"
    names = [name for (name,) in await pool.fetch(tables, report.replaced_in)]
    assert names == ["episodes", "lane_tickets"]
    async with pool.acquire() as connection:
        assert await fresh.drop_expired(connection, now=CLOCK.now()) == []
        later = CLOCK.now() + timedelta(hours=2)
        assert await fresh.drop_expired(connection, now=later) == [report.replaced_in]
    assert await schemas(pool) == []


async def test_rows_of_a_history_without_its_beginning_stay(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    await pool.execute("UPDATE findings SET summary = 'wrong' WHERE stack = $1", stack.name)
    ports.log._partition(Stream.JOURNAL, 0).purge()
    await fill(ports, first=6, count=1)
    await projected(ports, pool)

    report = await rebuilt(ports, pool)

    assert report.changes == [TableChange(table="findings", missing=0, needless=0, wrong=5)]
    assert len(await rows_of(pool, "episodes", stack=stack)) == 6


async def test_what_retention_has_taken_does_not_come_back(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    old = lives.episode_id(1)

    async def prune(connection, stack):
        for table in ("episodes", "episode_steps"):
            text = f"DELETE FROM {table} WHERE stack = $1 AND episode_id = $2"  # noqa: S608 - ours
            await connection.execute(text, stack.name, old)

    async with pool.acquire() as connection:
        await prune(connection, stack)
    assert (await verified(ports, pool, prune=prune)).difference is None
    await spoil(pool, stack)
    await rebuilt(ports, pool, prune=prune)
    found = await rows_of(pool, "episodes", stack=stack)
    assert old not in {str(each["episode_id"]) for each in found}
    assert len(found) == 4


async def test_a_rebuild_makes_the_rows_of_another_layout(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    spread = memory_ports(stack=Stack(stack.name, 3), clock=SystemClock())
    await fill(spread, first=10, count=4)
    await rebuilt(spread, pool)
    assert len(await rows_of(pool, "episodes", stack=stack)) == 4
    await fill(spread, first=20, count=2)
    await projected(spread, pool)
    assert len(await rows_of(pool, "episodes", stack=stack)) == 6
    assert (await verified(spread, pool)).difference is None


async def test_events_are_read_no_faster_than_is_allowed(ports, pool):
    await fill(ports)

    class Slow(SystemClock):
        slept_s = 0.0

        async def sleep(self, seconds):
            self.slept_s += seconds if seconds > 0.2 else 0.0  # Others are looks.
            await super().sleep(min(seconds, 0.001))

    clock = Slow()
    report = await rebuilt(ports, pool, clock=clock, events_per_s_max=10)
    assert clock.slept_s >= 0.9 * (report.events - 10) / 10


async def test_progress_is_told_with_rate_and_what_is_left(ports, pool):
    await fill(ports)
    told = []
    await rebuilt(ports, pool, told=told)
    reading = [each for each in told if each.stage == "reading"]
    assert reading[0].done == 0
    assert reading[0].left_s is None
    assert (reading[-1].done, reading[-1].left_s) == (reading[-1].total, 0.0)
    assert reading[-1].events_per_s > 0
    assert [each.stage for each in told if not each.done] == ["reading", "comparing", "swapping"]


async def test_tables_of_another_version_are_not_rebuilt(ports, own_pool):
    await own_pool.execute("INSERT INTO schema_migrations (name, checksum) VALUES ('0099', 'x')")
    with pytest.raises(NotMigrated, match="0099"):
        await rebuilt(ports, own_pool)


async def test_a_schema_without_tables_is_not_rebuilt(ports, bare_pool):
    with pytest.raises(NotMigrated, match="does not exist"):
        await rebuilt(ports, bare_pool)


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

    async def work():
        number = 100
        while not is_over.is_set():
            number += 1
            await fill(ports, first=number, count=1)
            await CLOCK.sleep(0.001)

    async with projecting(ports, pool), asyncio.TaskGroup() as group:
        group.create_task(work())
        for _ in range(2):
            assert (await verified(ports, pool)).difference is None
        is_over.set()


async def test_rows_that_do_not_follow_the_log_are_not_verified(ports, pool, monkeypatch):
    monkeypatch.setattr(rebuild, "LIVE_S_MAX", 0.2)
    await fill(ports)
    with pytest.raises(NotCaughtUp):
        await verified(ports, pool)


async def test_pages_of_a_history_know_where_it_begins(ports):
    history = LogHistory(ports)
    assert await history.first_seq(Stream.JOURNAL) == 1
    await fill(ports, count=1)
    assert await history.first_seq(Stream.JOURNAL) == 1
    ports.log._partition(Stream.JOURNAL, 0).purge()
    assert await history.first_seq(Stream.JOURNAL) > 1


class Cell(Row):
    a: str
    b: int | None = None


def test_a_change_without_a_whole_key_touches_all_rows_whose_keys_begin_so():
    keys = {"t": ("a", "b")}
    statement = Statement(name="s", table="t", keys=())
    changes = [RowChange(statement, Cell("x", 1)), RowChange(statement, Cell("y"))]
    touched = TouchedRows(keys)
    touched.add([("t", key_of(each, keys)) for each in changes])
    assert sorted(touched.documents()) == [
        ("t", 1, '[{"a":"y"}]'),
        ("t", 2, '[{"a":"x","b":1}]'),
    ]
    touched.forget()
    assert touched.documents() == []


async def test_every_table_of_the_log_is_rebuilt(own_pool, schema):
    async with own_pool.acquire() as connection:
        found = await fresh.statements_of(connection, schema, "beside")
    assert set(lives.TABLES) | {"projection_checkpoints"} == found.keys()


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
