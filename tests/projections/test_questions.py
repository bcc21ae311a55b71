"""The questions of the guide and the lists are answered by indexes, as the planner decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from bench.questions import STACK, fill, questions
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.queries import query

EPISODES: Final = 60_000

USES: Final[Mapping[str, set[str]]] = {
    "What runs now, the longest first?": {"episodes_by_status"},
    "What failed last, and why?": {"episodes_by_status"},
    "Which errors did the last day bring, and how often?": {"episodes_by_status"},
    "What has happened about one thing?": {"episodes_by_subject"},
    "How many episodes were opened, hour by hour, and what became of them?": {
        "episodes_by_opening"
    },
    "How long do the latest thousand episodes of an expectation wait, and how long do they take?": {
        "episodes_by_expectation"
    },
    "What did the latest episode do, step by step?": {"episode_steps_pkey", "episodes_by_opening"},
    "What is wrong now, the worst first?": {"findings_by_status or findings_expiring"},
    "What waits for a person, and for how long?": {"episodes_asking", "outputs_by_status"},
    "Which outputs could not be delivered?": {"outputs_by_status"},
}
"""Question → the indexes that answer it. Two are alike where all that they have is wanted."""

NOW: Final = datetime.now(UTC)
FIRST: Final = (None, None, None, None)
FURTHER: Final = ("high", NOW - timedelta(days=2), "host", 1)

LISTS: Final[Mapping[str, tuple[str, tuple[object, ...], set[str]]]] = {
    "findings that have ended": (
        "list_findings",
        (["cleared"], None, None, *FIRST, 51),
        {"findings_by_status"},
    ),
    "findings of any status, from the middle on": (
        "list_findings",
        (None, None, None, *FURTHER, 51),
        {"findings_by_status"},
    ),
    "how many findings there are": (
        "count_findings",
        (None, None, 1_001),
        {"findings_by_status"},
    ),
    "failures by cause": (
        "list_failures",
        (None, None, None, 1_000, 100),
        {"episodes_by_status", "episode_steps_pkey"},
    ),
    "episodes over a day": (
        "count_episodes_over_time",
        (NOW - timedelta(days=1), 1_800.0, None, None),
        {"episodes_by_status or episodes_by_start"},
    ),
}
"""List → its query, what is asked beside the stack, and the indexes that answer it."""

MANY: Final = {"episodes", "episode_steps", "findings", "finding_events", "outputs"}
"""Tables that are never read from one end to the other."""


@pytest.fixture(scope="module")
def filled(postgres) -> str:
    """A schema that has a week of a stack, as people find it: nothing about plans is set."""

    async def make() -> None:
        async with await connect(postgres.dsn, schema="questions") as pool:
            await migrate(pool)
            await fill(pool, EPISODES)

    asyncio.run(make())
    return "questions"


def nodes(plan: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def test_there_are_ten_questions_and_each_says_what_answers_it():
    assert len(questions()) == 10
    assert questions().keys() == USES.keys()


@pytest.mark.parametrize("question", USES)
async def test_a_question_is_answered_by_indexes(postgres, filled, question):
    text = questions()[question].replace("vigil.", "")
    async with await connect(postgres.dsn, schema=filled) as pool:
        assert await pool.fetch(text), "it has an answer"
        assert_indexed(await explained(pool, text), USES[question])


@pytest.mark.parametrize("asked", LISTS)
async def test_a_list_is_read_by_indexes(postgres, filled, asked):
    name, said, uses = LISTS[asked]
    async with await connect(postgres.dsn, schema=filled) as pool:
        assert_indexed(await explained(pool, query(name), STACK, *said), uses)


async def test_findings_of_the_past_are_looked_up_one_by_one(postgres, filled):
    hour_ago = NOW - timedelta(hours=1)
    async with await connect(postgres.dsn, schema=filled) as pool:
        text = query("list_findings_at")
        plan = await explained(pool, text, STACK, hour_ago, ["cleared"], None, None, *FIRST, 51)
    used = [each["Index Name"] for each in plan if "Index Name" in each]
    assert {"findings_by_status", "findings_pkey", "finding_events_pkey"} <= {*used}
    read = [each["Relation Name"] for each in plan if each["Node Type"] == "Seq Scan"]
    assert read in ([], ["findings"]), "what has changed since, and no history"


async def test_the_spans_of_a_day_are_not_sorted_to_be_counted(postgres, filled):
    name, said, _ = LISTS["episodes over a day"]
    async with await connect(postgres.dsn, schema=filled) as pool:
        plan = await explained(pool, query(name), STACK, *said)
    assert [each["Strategy"] for each in plan if each["Node Type"] == "Aggregate"] == ["Hashed"]


async def explained(pool, text, *args):
    """Return the nodes of the plan of a question."""
    plan = await pool.fetchval(f"EXPLAIN (FORMAT JSON) {text}", *args)
    return [*nodes(msgspec.json.decode(plan)[0]["Plan"])]


def assert_indexed(plan, uses):
    """Assert that a plan uses these indexes, and reads no large table from end to end."""
    read = {each["Relation Name"] for each in plan if each["Node Type"] == "Seq Scan"}
    assert read & MANY == set()
    used = {each["Index Name"] for each in plan if "Index Name" in each}
    assert [each for each in uses if used.isdisjoint(each.split(" or "))] == []
