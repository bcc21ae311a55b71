"""Queries to a real Postgres, which changes nothing for them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.app.tools import CallContext, ToolFailed
from engine.errors import BadTool
from engine.toolbox.sql import sql_query

CTX = CallContext(
    actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="e:1"
)


async def asked(postgres, statement: str, *args: object, **options) -> Any:
    tool = sql_query(postgres.dsn, **options)
    return await tool.call("query", {"statement": statement, "args": list(args)}, CTX)


async def failed(postgres, statement: str, *args: object, **options) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        await asked(postgres, statement, *args, **options)
    return failure.value


async def test_a_query_returns_names_and_rows(postgres):
    assert await asked(postgres, "SELECT $1::int + 1 AS n, 'a' AS s", 6) == {
        "columns": ["n", "s"],
        "rows": [[7, "a"]],
        "is_complete": True,
    }


async def test_values_that_json_lacks_are_texts(postgres):
    found = await asked(
        postgres, "SELECT 1.50::numeric, '2026-01-02'::date, '10.0.0.1'::inet, NULL, '{1,2}'::int[]"
    )

    assert found["rows"] == [["1.50", "2026-01-02", "10.0.0.1", None, [1, 2]]]


async def test_no_more_rows_come_than_are_allowed(postgres):
    found = await asked(postgres, "SELECT generate_series(1, 1000000)", rows_max=3)

    assert (found["rows"], found["is_complete"]) == ([[1], [2], [3]], False)


async def test_as_many_rows_as_are_allowed_are_all(postgres):
    found = await asked(postgres, "SELECT generate_series(1, 3)", rows_max=3)

    assert (len(found["rows"]), found["is_complete"]) == (3, True)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE written (n int)",
        "SELECT set_config('transaction_read_only', 'off', true)",
        "INSERT INTO pg_description VALUES (1, 1, 1, 'x')",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT 1 / 0",
    ],
)
async def test_what_writes_or_is_wrong_is_refused(postgres, statement):
    assert (await failed(postgres, statement)).error_class == "query_refused"


async def test_a_statement_that_takes_too_long_is_ended(postgres):
    failure = await failed(postgres, "SELECT pg_sleep(5)", timeout_s=0.05)

    assert (failure.error_class, failure.detail) == ("tool_timeout", "over 0.05 s")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:s3cr/et@h/db",
        "postgresql://u:s3cr[et@h/db",
        "postgresql://u:p@127.0.0.1:99999/db",
        "s3cret://u@h/db",
    ],
)
async def test_a_connection_string_that_is_none_is_not_told(dsn):
    with pytest.raises(ToolFailed) as failure:
        await sql_query(lambda: dsn).call("query", {"statement": "SELECT 1"}, CTX)

    assert failure.value.error_class == "tool_auth_failed"
    assert failure.value.detail == "the dsn is not a connection string"
    assert failure.value.__cause__ is None


async def test_a_database_that_is_away_is_unavailable():
    tool = sql_query("postgresql://127.0.0.1:1/none")

    with pytest.raises(ToolFailed) as failure:
        await tool.call("query", {"statement": "SELECT 1"}, CTX)
    assert failure.value.error_class == "tool_unavailable"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rows_max": 0}, "rows_max: 0 is not a whole number from 1 to 10,000"),
        ({"timeout_s": -9}, "timeout_s: -4.0 is not a number over 0"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(options, problem):
    with pytest.raises(BadTool) as refused:
        sql_query("postgresql://", **options)
    assert problem in str(refused.value)
