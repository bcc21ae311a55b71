"""The ten questions of the guide are answered by indexes, as the planner itself decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pytest

from bench.questions import fill, questions
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect

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
    "What is wrong now, the worst first?": {"findings_active or findings_expiring"},
    "What waits for a person, and for how long?": {"episodes_asking", "outputs_by_status"},
    "Which outputs could not be delivered?": {"outputs_by_status"},
}
"""Question → the indexes that answer it. Two are alike where all that they have is wanted."""

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
        (explained,) = await pool.fetchrow(f"EXPLAIN (FORMAT JSON) {text}")
    plan = [*nodes(msgspec.json.decode(explained)[0]["Plan"])]
    assert {each["Relation Name"] for each in plan if each["Node Type"] == "Seq Scan"} & MANY == (
        set()
    )
    used = {each["Index Name"] for each in plan if "Index Name" in each}
    assert [each for each in USES[question] if used.isdisjoint(each.split(" or "))] == []
