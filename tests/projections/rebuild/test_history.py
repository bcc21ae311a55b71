"""What a rebuild makes of a history that is not whole, of old rows, and of replaced ones."""

from __future__ import annotations

from datetime import timedelta

from engine.retention.store import note_cuts
from projections.postgres.prune import prune, prune_beside
from projections.postgres.rebuild import fresh
from projections.postgres.rebuild.rebuild import TableChange
from streams.clock import SystemClock
from streams.keys import episode_claim
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.events import DeadLettered
from streams.model.retention import RetentionCut, RetentionField
from streams.ports.log import START, Commit
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import rows_of
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


async def test_letters_that_have_left_their_stream_spare_no_other_row(ports, pool, stack):
    await fill(ports)
    letter = DeadLettered(reason="unreadable", detail="", stream="s", seq=1, subject="s.event.a")
    for name in "ab":
        commit = Commit(id=name, at=lives.AT, events=(letter,))
        await ports.log.append(stack.dead("s", name), commit, after=START)
    await ports.states.purge("dead", below=2)
    await projected(ports, pool)
    await pool.execute(
        "UPDATE findings SET finding_key = 'needless' WHERE finding_key ="
        " (SELECT min(finding_key) FROM findings)"
    )
    report = await rebuilt(ports, pool)
    assert report.changes == [TableChange(table="findings", missing=1, needless=1, wrong=0)]


async def test_what_retention_has_taken_does_not_come_back(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    old = lives.episode_id(1)

    async def prune(connection, stack, live):
        for table in ("episodes", "episode_steps"):
            text = f"DELETE FROM {table} WHERE stack = $1 AND episode_id = $2"  # noqa: S608 - ours
            await connection.execute(text, stack.name, old)

    async with pool.acquire() as connection:
        await prune(connection, stack, connection)
    assert (await verified(ports, pool, prune=prune)).difference is None
    await spoil(pool, stack)
    await rebuilt(ports, pool, prune=prune)
    found = await rows_of(pool, "episodes", stack=stack)
    assert old not in {str(each["episode_id"]) for each in found}
    assert len(found) == 4


async def test_what_is_over_due_and_has_not_left_yet_is_no_difference(ports, pool, stack):
    await fill(ports)
    cut = RetentionCut(what=RetentionField.DONE, before=lives.AT + timedelta(days=30))
    await note_cuts(ports, (cut,), by="n1", clock=CLOCK)
    await projected(ports, pool)
    assert await rows_of(pool, "episodes", stack=stack)
    assert (await verified(ports, pool, prune=prune_beside)).difference is None
    assert (await rebuilt(ports, pool, prune=prune_beside)).changes == []

    await pool.execute("UPDATE episodes SET status = 'failed' WHERE stack = $1", stack.name)
    assert (await verified(ports, pool, prune=prune_beside)).difference is not None
    await rebuilt(ports, pool, prune=prune_beside)

    await prune(ports, pool, clock=lives.HurriedClock())
    assert await rows_of(pool, "episodes", stack=stack) == []
    assert (await verified(ports, pool, prune=prune_beside)).difference is None


async def test_claims_stay_as_they_are_whatever_is_done_beside_them(ports, pool, stack):
    await fill(ports)
    await ports.leases.acquire(episode_claim("monitor", lives.episode_id(7)), holder="n1")
    await projected(ports, pool)
    before = await rows_of(pool, "work_claims", stack=stack)
    assert before

    async def prune(connection, stack, live):
        await connection.execute("DELETE FROM work_claims WHERE stack = $1", stack.name)

    assert (await verified(ports, pool, prune=prune)).difference is None
    await spoil(pool, stack)
    await rebuilt(ports, pool, prune=prune)
    assert await rows_of(pool, "work_claims", stack=stack) == before


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
    history = ports.log
    assert await history.first_seq(Stream.JOURNAL) == 1
    await fill(ports, count=1)
    assert await history.first_seq(Stream.JOURNAL) == 1
    ports.log._partition(Stream.JOURNAL, 0).purge()
    assert await history.first_seq(Stream.JOURNAL) > 1
