"""The schema explains itself, and readers cannot change it."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import asyncpg
import pytest

from projections import (
    claims,
    dead_letters,
    definitions,
    episodes,
    findings,
    lanes,
    outputs,
    workflows,
)
from projections.errors import MigrationChanged, MigrationUnknown
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.queries import Migration, migrations, query, reversed_query
from projections.rows import Statement
from tests.projections import lives

RELATIONS = """
SELECT c.relname AS name, c.relkind IN ('r', 'p') AS is_table,
       obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p', 'v')
"""
MANY_EPISODES = """
INSERT INTO episodes (
    stack, episode_id, journal_seq, actor_id, expectation_id, generation, trigger_type,
    trigger_ref, dedupe_key, budget, queued_at, status, started_at
)
SELECT 'many', gen_random_uuid(), n, 'a', 'e', 0, 'event', '{}', n, '{}',
    now() - n * interval '1 s', 'done', now() - n * interval '1 s'
FROM generate_series(1, 5000) AS n
"""
COLUMNS = """
SELECT c.relname AS relation, a.attname AS name, col_description(c.oid, a.attnum) AS comment
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p', 'v')
    AND a.attnum > 0 AND NOT a.attisdropped
"""


async def test_every_table_view_and_column_says_what_it_is(pool, schema):
    relations = await pool.fetch(RELATIONS, schema)
    columns = await pool.fetch(COLUMNS, schema)
    assert len(relations) >= 17
    silent = [row["name"] for row in relations if not row["comment"]]
    silent += [f"{row['relation']}.{row['name']}" for row in columns if not row["comment"]]
    assert silent == []


async def test_every_row_says_which_stack_and_which_commit_it_comes_from(pool, schema):
    has: dict[str, set[str]] = {}
    for row in await pool.fetch(COLUMNS, schema):
        has.setdefault(row["relation"], set()).add(row["name"])
    own = has.keys() - {"schema_migrations"}
    assert [name for name in own if not {"stack", "journal_seq"} <= has[name]] == []


async def test_migrating_again_changes_nothing(bare_pool):
    assert await migrate(bare_pool) == [each.name for each in migrations()]
    assert await migrate(bare_pool) == []


async def test_many_nodes_may_migrate_at_once(bare_pool):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(migrate(bare_pool)) for _ in range(6)]
    assert sorted(len(task.result()) for task in tasks) == [0, 0, 0, 0, 0, len(migrations())]


async def test_an_edited_migration_is_refused_by_name(pool):
    first, *rest = migrations()
    edited = [Migration(first.name, f"{first.text}\n-- later"), *rest]
    with pytest.raises(MigrationChanged, match=first.name):
        await migrate(pool, wanted=edited)


async def test_a_migration_that_fails_leaves_nothing(bare_pool):
    wanted = [*migrations(), Migration("9999_broken.sql", "CREATE TABLE half (a int); SELECT 1/0")]
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(bare_pool, wanted=wanted)
    assert await bare_pool.fetchval("SELECT to_regclass('episodes')") is None


async def test_a_schema_that_a_newer_version_migrated_is_left_alone(own_pool):
    await migrate(own_pool, wanted=[*migrations(), Migration("9999_newer.sql", "SELECT 1")])
    assert await migrate(own_pool) == []


async def test_a_schema_that_no_version_before_ours_made_is_refused_and_left_alone(
    bare_pool, schema
):
    unreleased = Migration("0001_read_models.sql", "CREATE TABLE episodes (stack text)")
    await migrate(bare_pool, wanted=[unreleased])

    with pytest.raises(MigrationUnknown) as refused:
        await migrate(bare_pool)

    says = str(refused.value)
    assert "\n" not in says
    assert f"{unreleased.name} and without {migrations()[0].name}" in says
    assert f"drop the schema {schema} with CASCADE" in says
    assert await bare_pool.fetchval("SELECT name FROM schema_migrations") == unreleased.name


async def test_two_schemas_live_side_by_side(own_pool, postgres, schema):
    other = await connect(postgres.dsn, schema=f"{schema}_rebuilt")
    assert await migrate(other) == [each.name for each in migrations()]
    await other.close()


async def test_the_reader_reads_and_does_not_write(pool, schema):
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE vigil_reader")
        for readable in ("active_findings", "outputs", "approvals", "inbox"):
            assert await connection.fetch(f"SELECT * FROM {readable}") == []  # noqa: S608 - our own words
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("DELETE FROM episodes")


def after(seconds):
    """The place of an episode that was opened and started so long ago."""
    time = f"(now() - interval '{seconds} s')"
    return {8: time, 9: time, 10: f"'{UUID(int=0)}'"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (query("list_episodes"), {}),
        (reversed_query("list_episodes"), {}),
        (query("list_episodes"), after(4_900)),
        (reversed_query("list_episodes"), after(100)),
        (query("list_episodes"), {2: "ARRAY['done']"}),
        (query("list_episodes"), {2: "ARRAY['done', 'failed']"}),
        (query("list_episodes"), {3: "ARRAY['a']"}),
    ],
    ids=["newest", "oldest", "late", "late oldest", "a status", "statuses", "an actor"],
)
async def test_a_page_of_episodes_is_found_without_looking_at_all_of_them(own_pool, text, values):
    await own_pool.execute(MANY_EPISODES)
    await own_pool.execute("ANALYZE episodes")
    unsaid = dict.fromkeys((*range(2, 11), 12), "NULL")
    values = {1: "'many'", 11: "50", **unsaid, **values}
    for number in sorted(values, reverse=True):
        text = text.replace(f"${number}", values[number])
    (plan,) = json.loads(await own_pool.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))
    assert "episodes_by_" in str(plan)
    assert most_rows(plan["Plan"]) < 200


@pytest.mark.parametrize("name", [query, reversed_query], ids=["newest", "oldest"])
async def test_a_page_of_the_past_is_found_without_looking_at_all_episodes(own_pool, name):
    await own_pool.execute(MANY_EPISODES)
    await own_pool.execute("ANALYZE episodes")
    text = name("list_episodes_at")
    values = {1: "'many'", 2: "now()", **dict.fromkeys(range(3, 12), "NULL"), 12: "50"}
    for number in sorted(values, reverse=True):
        text = text.replace(f"${number}", values[number])
    (plan,) = json.loads(await own_pool.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))
    assert "episodes_by_opening" in str(plan)
    assert most_rows(plan["Plan"]) < 200


MANY_STEPS = """
INSERT INTO episode_steps (stack, episode_id, step_no, journal_seq, kind, state, created_at)
SELECT 'many', episode_id, 1, 1, 'tool_call', 'recorded', now() FROM episodes
"""


@pytest.mark.parametrize(
    "text",
    [
        query("list_timeline"),
        query("list_log_lines"),
        "SELECT * FROM episode_logs WHERE stack = $1 AND episode_id = $2",
    ],
    ids=["timeline", "lines", "log"],
)
async def test_what_one_episode_did_is_found_without_looking_at_others(own_pool, text):
    await own_pool.execute(MANY_EPISODES)
    await own_pool.execute(MANY_STEPS)
    await own_pool.execute("ANALYZE episodes, episode_steps")
    one = await own_pool.fetchval("SELECT episode_id FROM episodes LIMIT 1")
    for number, value in {1: "'many'", 2: f"'{one}'", 3: "NULL", 4: "100", 5: "NULL"}.items():
        text = text.replace(f"${number}", value)
    (plan,) = json.loads(await own_pool.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))
    assert "episode_steps_pkey" in str(plan)
    assert most_rows(plan["Plan"]) < 20


def most_rows(plan):
    return max(plan["Actual Rows"], *map(most_rows, plan.get("Plans", [])), 0)


PRIMARY_KEY = """
    SELECT array_agg(attname::text ORDER BY place)
    FROM pg_index, unnest(indkey) WITH ORDINALITY AS key (attnum, place)
    JOIN pg_attribute USING (attnum)
    WHERE indrelid = $1::text::regclass AND indisprimary AND attrelid = indrelid
"""


@pytest.mark.parametrize("state", ["announced", "recorded"])
async def test_an_impossible_status_is_refused_by_the_schema(pool, stack, state):
    await lives.write_events(
        pool, lives.opened(), stack=stack, subject=stack.episode(lives.episode_id(1))
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await pool.execute("UPDATE episodes SET status = $1", state)


MODULES = (claims, dead_letters, definitions, episodes, findings, lanes, outputs, workflows)
STATEMENTS = {
    value.name: value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, Statement)
}.values()


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.name)
async def test_a_statement_has_a_query_that_takes_a_stack_and_rows(pool, stack, statement):
    await pool.execute(query(statement.name), stack.name, "[]")


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.name)
async def test_a_statement_names_a_row_as_its_table_does(pool, statement):
    if not statement.keys:
        return
    named = await pool.fetchval(PRIMARY_KEY, statement.table)
    assert named == ["stack", *statement.keys]
