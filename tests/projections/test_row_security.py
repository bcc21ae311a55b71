"""Who may read one stack reads its rows, and no others, of whatever the schema has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import append, projecting, wait_projected
from tests.projections.test_projector import fill

RELATIONS = """
SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v')
    AND a.attname = 'stack'
ORDER BY 1
"""
UNPROTECTED = """
SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND a.attname = 'stack'
    AND (c.relkind = 'r' AND NOT c.relrowsecurity
        OR c.relkind = 'v' AND NOT coalesce('security_invoker=true' = ANY (c.reloptions), false))
"""
FUNCTIONS = (
    "episodes_at($1, 'infinity')",
    "findings_at($1, 'infinity')",
    "inbox_at($1, 'infinity')",
    "finding_caused_by('disk:h1', $1)",
    "finding_causal_chain('disk:h1', 10, $1)",
)
LISTING = """
SELECT * FROM episodes WHERE stack = $1 AND started_at < now()
ORDER BY started_at DESC, queued_at DESC LIMIT 50
"""


@pytest.fixture
async def others(ports, own_pool):
    """Another stack in the same tables; both have rows of everything."""
    other = memory_ports(stack=Stack(f"{ports.stack.name}-Other"), clock=SystemClock())
    for each in (ports, other):
        await fill(each, count=2)
        asks = (lives.opened(9),), (lives.started(),), (lives.blocked(1),)
        await append(each.log, each.stack.episode(lives.episode_id(9)), *asks)
        async with projecting(each, own_pool):
            await wait_projected(each, own_pool)
    return other.stack


@asynccontextmanager
async def reading_as(pool, *stacks) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection of somebody who may read these stacks."""
    person = f"person_{stacks[0].name}" if stacks else "stranger"
    async with pool.acquire() as connection:
        roles = [
            await connection.fetchval("SELECT create_stack_reader($1)", s.name) for s in stacks
        ]
        await connection.execute(f'CREATE ROLE "{person}"')
        for role in roles:
            await connection.execute(f'GRANT "{role}" TO "{person}"')
        await connection.execute(f'SET ROLE "{person}"')
        try:
            yield connection
        finally:
            await connection.execute("RESET ROLE")
            for role in (*roles, person):
                await connection.execute(f'DROP OWNED BY "{role}"')
                await connection.execute(f'DROP ROLE "{role}"')


async def stacks_in(connection, relation, *args):
    text = f"SELECT DISTINCT stack FROM {relation}"  # noqa: S608 - our own words
    return {name for (name,) in await connection.fetch(text, *args)}


async def test_every_table_and_view_has_the_rows_of_the_readers_stack_alone(
    own_pool, stack, others
):
    relations = [name for (name,) in await own_pool.fetch(RELATIONS)]
    async with own_pool.acquire() as owner:
        filled = {each for each in relations if await stacks_in(owner, each) >= {stack.name}}
    assert {"episodes", "findings", "inbox", "episode_timeline", "projection_checkpoints"} <= filled
    async with reading_as(own_pool, stack) as connection:
        seen = {each: await stacks_in(connection, each) for each in relations}
    assert {each: found for each, found in seen.items() if found - {stack.name}} == {}
    assert {each for each, found in seen.items() if found} == filled


async def test_functions_tell_nothing_of_another_stack(own_pool, stack, others):
    async with reading_as(own_pool, stack) as connection:
        for each in FUNCTIONS:
            text = f"SELECT count(*) FROM {each}"  # noqa: S608 - our own words
            assert await connection.fetchval(text, others.name) == 0, each
        text = "SELECT count(*) FROM episodes_at($1, 'infinity')"
        assert await connection.fetchval(text, stack.name) == 3


async def test_who_may_read_two_stacks_sees_both(own_pool, stack, others):
    async with reading_as(own_pool, stack, others) as connection:
        assert await stacks_in(connection, "episodes") == {stack.name, others.name}


async def test_the_reader_of_all_stacks_sees_all(own_pool, stack, others):
    async with own_pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE vigil_reader")
        assert await stacks_in(connection, "episodes") >= {stack.name, others.name}
        assert await stacks_in(connection, "inbox") == await stacks_in(own_pool, "inbox")


async def test_a_reader_changes_nothing(own_pool, stack, others):
    async with reading_as(own_pool, stack) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("DELETE FROM episodes")


async def test_who_reads_no_stack_reads_nothing(own_pool, stack, others, schema):
    async with reading_as(own_pool, stack) as connection:
        await connection.execute("RESET ROLE")
        await connection.execute("CREATE ROLE granted_only")
        await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO granted_only")
        await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO granted_only")
        await connection.execute("SET ROLE granted_only")
        assert await stacks_in(connection, "episodes") == set()
        await connection.execute("RESET ROLE")
        await connection.execute("DROP OWNED BY granted_only")
        await connection.execute("DROP ROLE granted_only")


async def test_no_table_and_no_view_of_stacks_is_left_out(own_pool):
    assert await own_pool.fetch(UNPROTECTED) == []


async def test_lists_of_a_reader_use_the_index(own_pool, stack, others):
    async with reading_as(own_pool, stack) as connection:
        await connection.execute("SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {LISTING}", stack.name))
        await connection.execute("RESET enable_seqscan")
    assert "Index Scan using episodes_by_start" in plan
    assert "Sort" not in plan
