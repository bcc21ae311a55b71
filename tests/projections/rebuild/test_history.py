"""What a rebuild makes of a history that is not whole, of old rows, and of replaced ones."""

from __future__ import annotations

import re
from datetime import timedelta

from projections.postgres.prune import prune
from projections.postgres.queries import query
from projections.postgres.rebuild import fresh
from projections.postgres.rebuild.rebuild import PRUNED, TableChange
from streams.clock import SystemClock
from streams.history import LogHistory
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.events import RowsCut
from streams.model.retention import RetentionCut, RetentionField
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, HurriedClock, all_rows, append, rows_of
from tests.projections.rebuild.rebuilding import (
    CLOCK,
    projected,
    rebuilt,
    schemas,
    spoil,
    verified,
)
from tests.projections.test_projector import fill


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


async def retain(ports, *cuts):
    event = RowsCut(cuts=cuts, by="n1")
    await append(ports.log, ports.stack.order("cuts"), (event,))


def cut(what, **fields):
    given = {"actor_id": "", "before": AT + timedelta(days=1)}
    return RetentionCut(what=RetentionField(what), **(given | fields))


async def test_what_retention_has_taken_does_not_come_back(ports, pool, stack):
    await fill(ports)
    asks = (lives.opened(9),), (lives.started(),)
    await append(ports.log, stack.episode(lives.episode_id(9)), *asks)
    await retain(ports, *map(cut, ("done", "failed", "findings", "outputs", "dead_letters")))
    await projected(ports, pool)
    report = await prune(ports, pool, clock=HurriedClock())
    assert {"episodes", "findings", "outputs"} <= report.deleted.keys()
    assert (await verified(ports, pool)).difference is None
    left = await all_rows(pool, stack=stack)
    assert [str(each["episode_id"]) for each in left["episodes"]] == [lives.episode_id(9)]
    await pool.execute("UPDATE episodes SET summary = 'wrong' WHERE stack = $1", stack.name)

    report = await rebuilt(ports, pool)

    assert report.changes == [TableChange(table="episodes", missing=0, needless=0, wrong=1)]
    assert await all_rows(pool, stack=stack) == left


async def test_what_is_missing_and_is_not_old_enough_comes_back(ports, pool, stack):
    await fill(ports)
    await retain(ports, *(cut(each, before=AT) for each in ("done", "findings", "outputs")))
    await projected(ports, pool)
    right = await all_rows(pool, stack=stack)
    for table in ("episodes", "episode_steps", "findings", "outputs", "workflow_instances"):
        await pool.execute(f"DELETE FROM {table} WHERE stack = $1", stack.name)  # noqa: S608 - ours
    await rebuilt(ports, pool)
    assert await all_rows(pool, stack=stack) == right


async def test_every_table_that_retention_takes_rows_from_is_spared():
    taken = set()
    for kind in ("episodes", "instances", "findings", "outputs", "dead_letters"):
        taken |= set(re.findall(r"DELETE FROM (\w+)", query(f"delete_{kind}")))
    assert taken - set(fresh.LEFT_ALONE) == {each for tables in PRUNED.values() for each in tables}


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


async def test_pages_of_a_history_know_where_it_begins(ports):
    history = LogHistory(ports)
    assert await history.first_seq(Stream.JOURNAL) == 1
    await fill(ports, count=1)
    assert await history.first_seq(Stream.JOURNAL) == 1
    ports.log._partition(Stream.JOURNAL, 0).purge()
    assert await history.first_seq(Stream.JOURNAL) > 1
