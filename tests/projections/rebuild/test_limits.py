"""What a rebuild is held to: a pace, a version, all tables, and the keys that it remembers."""

from __future__ import annotations

import pytest

from projections.errors import (
    NotMigrated,
)
from projections.postgres.rebuild import fresh
from projections.postgres.rebuild.catch_up import TouchedRows, key_of
from projections.rows import Row, RowChange, Statement
from streams.clock import SystemClock
from tests.projections import lives
from tests.projections.rebuild.rebuilding import (
    rebuilt,
)
from tests.projections.test_projector import fill


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
    untold = {"projection_checkpoints", *fresh.LEFT_ALONE}
    assert found.keys() >= set(lives.TABLES) | untold
