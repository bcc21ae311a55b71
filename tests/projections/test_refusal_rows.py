"""Refusals as rows: for a day, and whatever becomes of their stream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from projections.postgres import reader as reader_of_rows
from projections.postgres import store
from projections.postgres.batches import FORGET_S, RefusalSource
from projections.postgres.queries import query
from streams.memory.refusals import MemoryRefusals
from streams.model.refusals import AgainstFilter
from streams.ports.refusals import KEPT_MAX, RecordedRefusal
from tests.contracts.test_refusals import refusal
from tests.projections.test_feeds import StoppedClock
from tests.simulation.time import SimClock

NOW = datetime(2030, 1, 1, tzinfo=UTC)


async def applied(pool, ports, reader):
    """Write what a reader has next, as a projector does."""
    batch = await reader.receive()
    name = ports.stack.name
    since = await store.load(pool, stack=name, projection="refusals", now=NOW)
    async with pool.acquire() as connection:
        await store.apply(connection, batch.batches, since=since, position=batch.position, now=NOW)
    return batch


async def ids(pool, ports):
    found = await pool.fetch(
        "SELECT event_id FROM refusals WHERE stack = $1 ORDER BY refused_at, journal_seq",
        ports.stack.name,
    )
    return [row["event_id"] for row in found]


def pages_of(stored, *, most=KEPT_MAX):
    """Return the `after` of a port that has kept all of `stored`."""

    async def after(seq, *, actor=""):
        return [
            RecordedRefusal(number, each)
            for number, each in enumerate(stored, start=1)
            if number > seq
        ][:most]

    return after


def source(ports, clock=None):
    return RefusalSource(ports, clock or StoppedClock())


async def test_a_refusal_becomes_a_row_with_its_words(ports, pool):
    against = AgainstFilter(path="mount", wanted="/", found="/var")
    await ports.refusals.store([refusal(1, at=NOW, against=against, subject="web-1\0")])
    async with source(ports).open(after=0, mark="") as reader:
        batch = await applied(pool, ports, reader)

    row = await pool.fetchrow("SELECT * FROM refusals WHERE stack = $1", ports.stack.name)
    assert (row["event_id"], row["actor_id"], row["expectation_id"]) == ("x1", "monitor", "disk")
    assert (row["reason"], row["refused_at"]) == ("filter", NOW)
    assert row["compared_with"] == "filter mount = /: the event has /var"
    assert row["subject_id"] == "web-1\N{REPLACEMENT CHARACTER}"
    assert (batch.position, batch.events) == (1, 1)


async def test_reading_again_from_the_beginning_changes_nothing(ports, pool):
    await ports.refusals.store([refusal(number, at=NOW) for number in range(3)])
    for _ in range(2):
        async with source(ports).open(after=0, mark="") as reader:
            await applied(pool, ports, reader)

    assert await ids(pool, ports) == ["x0", "x1", "x2"]


async def test_what_is_over_a_day_old_is_deleted(ports, pool):
    day = timedelta(hours=24)
    old = [refusal(1, at=NOW - day - timedelta(seconds=1)), refusal(2, at=NOW - day)]
    clock = StoppedClock()
    await ports.refusals.store(old)
    async with source(ports, clock).open(after=0, mark="") as reader:
        await applied(pool, ports, reader)
        await clock.sleep(FORGET_S)
        await applied(pool, ports, reader)

    assert await ids(pool, ports) == ["x2"]


async def test_an_expectation_has_its_newest_as_the_stream_does(ports, pool, monkeypatch):
    stored = [refusal(number, at=NOW + timedelta(seconds=number)) for number in range(250)]
    monkeypatch.setattr(ports.refusals, "after", pages_of(stored))
    async with source(ports).open(after=0, mark="") as reader:
        await applied(pool, ports, reader)
        assert len(await ids(pool, ports)) == KEPT_MAX
        await applied(pool, ports, reader)

    assert await ids(pool, ports) == [f"x{number}" for number in range(50, 250)]


async def test_where_nothing_is_new_nothing_is_written(ports):
    clock = StoppedClock()
    async with source(ports, clock).open(after=0, mark="") as reader:
        first = await reader.receive()
        assert (first.position, first.events) == (0, 0)
        assert await reader.receive() is None


async def test_a_stream_that_was_made_anew_is_read_from_its_beginning(ports, pool):
    await ports.refusals.store([refusal(number, at=NOW) for number in range(3)])
    async with source(ports).open(after=0, mark="") as reader:
        await applied(pool, ports, reader)
    anew = MemoryRefusals(SimClock(), stack=ports.stack)
    ports = type(ports)(**{**vars(ports), "refusals": anew})
    ports.refusals._clock = StoppedClock()
    await anew.store([refusal(9, at=NOW + timedelta(seconds=1))])
    async with source(ports).open(after=3, mark="") as reader:
        await applied(pool, ports, reader)

    assert await ids(pool, ports) == ["x0", "x1", "x2", "x9"]


async def test_refusals_are_listed_the_latest_first_and_narrowed(ports, pool):
    stored = [refusal(number, at=NOW + timedelta(seconds=number)) for number in range(3)]
    await ports.refusals.store(stored)
    async with source(ports).open(after=0, mark="") as reader:
        await applied(pool, ports, reader)

    async def listed(**said):
        found = await reader_of_rows.list_refusals(pool, ports.stack, **said)
        return [row["event_id"] for row in found]

    everything = await listed()
    first, *_ = await reader_of_rows.list_refusals(pool, ports.stack, limit=1)

    assert everything == [each.event_id for each in reversed(stored)]
    assert await listed(past=first) == everything[1:]
    assert await listed(reverse=True) == everything[::-1]
    assert await listed(actor="nobody") == []
    assert await listed(reason="nothing") == []


async def test_refusals_are_found_by_an_index(ports, pool):
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        plan = await connection.fetch(
            f"EXPLAIN {query('list_refusals')}", ports.stack.name, *[None] * 6, 50
        )

    text = "\n".join(row[0] for row in plan)
    assert "refusals_by_time on refusals" in text
