"""What the readers of `bench/rebuild_under_load.py` take for a fault: they could see one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.rebuild_under_load import FILLED_BY, SPOILT, STEPS, Counted, Filled, Known, Seen, whole
from bench.vigil import STACK

EPISODES = 2_000
NOW = datetime(2020, 1, 8, tzinfo=UTC)
GONE = "DELETE FROM episodes WHERE episode_id = $1"
STEPS_GONE = "DELETE FROM episode_steps WHERE episode_id = $1"
SAYS = "UPDATE episodes SET summary = $2 WHERE episode_id = $1"
ALL_SAY = "UPDATE episodes SET summary = $2 WHERE $1::uuid IS NOT NULL"
IS_OF = "UPDATE episodes SET actor_id = $2 WHERE episode_id = $1"
LISTS = Path(__file__).parents[3] / "bench/lists.sql"


@pytest.fixture
async def rows(own_pool):
    """A connection to tables with some episodes of what the journal was filled with."""
    async with own_pool.acquire() as connection:
        await connection.execute(LISTS.read_text(), STACK.name, EPISODES, NOW)
        await connection.execute("UPDATE episodes SET actor_id = $1, summary = 'ok'", FILLED_BY)
        yield connection


async def ids(rows):
    found = await rows.fetch("SELECT episode_id::text FROM episodes WHERE status = 'done'")
    return [row["episode_id"] for row in found]


async def newest(rows):
    return await rows.fetchval(
        "SELECT episode_id FROM episodes WHERE status = 'done' ORDER BY queued_at DESC LIMIT 1"
    )


async def filled(rows):
    return Filled(dict.fromkeys(await ids(rows), "ok"))


async def counted(rows):
    return Counted(filled=await rows.fetchval("SELECT count(*) FROM episodes"))


async def known(rows):
    return Known(await whole(rows, await ids(rows)))


async def seen(rows):
    return Seen()


@pytest.mark.parametrize(
    ("reader", "happens", "to"),
    [
        (filled, GONE, ()),
        (filled, SAYS, (SPOILT,)),
        (filled, ALL_SAY, (SPOILT,)),
        (counted, GONE, ()),
        (counted, SAYS, (SPOILT,)),
        (known, SAYS, ("other",)),
        (known, STEPS_GONE, ()),
        (seen, GONE, ()),
        (seen, SAYS, ("other",)),
        (seen, IS_OF, (STEPS,)),
    ],
)
async def test_a_reader_finds_no_fault_until_there_is_one(rows, reader, happens, to):
    watching = await reader(rows)
    for _ in range(2):
        assert await watching.look(rows) == []
    await rows.execute(happens, await newest(rows), *to)
    assert await watching.look(rows) != []
