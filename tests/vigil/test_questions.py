"""The questions that the demo asks are about its own stack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from projections.postgres.reader import run_sql
from streams.subjects import Stack
from tests.projections import lives
from vigil.asking import rows

NAMES = sorted(path.stem for path in Path("vigil/sql").glob("*.sql"))


@pytest.fixture
async def pool(postgres: EmbeddedPostgres) -> AsyncIterator[Pool]:
    """Connections to the tables that every test here shares."""
    async with await connect(postgres.dsn) as pool:
        await migrate(pool)
        yield pool


async def live(pool: Pool, stack: Stack) -> None:
    """Let one episode with two steps, and one finding, happen in `stack`."""
    steps = (lives.recorded(1), lives.recorded(2))
    episode = stack.episode(lives.episode_id(1))
    await lives.write_events(pool, lives.opened(), *steps, stack=stack, subject=episode)
    finding = stack.finding("disk:h1")
    await lives.write_events(pool, lives.raised(), stack=stack, subject=finding)


@pytest.mark.parametrize("name", NAMES)
async def test_what_another_stack_does_changes_no_answer(pool, stack, name):
    await live(pool, stack)
    before = await rows.answer(pool, stack, name)

    await live(pool, Stack(f"{stack.name}-other"))

    assert before.rows
    assert await rows.answer(pool, stack, name) == before


@pytest.mark.parametrize("name", NAMES)
async def test_a_question_can_be_asked_again_as_it_is_shown(pool, stack, name):
    await live(pool, stack)

    asked_again = await run_sql(pool, rows.shown_question(name, stack))

    assert asked_again == await rows.answer(pool, stack, name)


async def test_a_blocked_episode_does_not_run(pool, stack):
    begun = (lives.opened(), lives.started())
    for number, events in enumerate([(lives.opened(),), begun, (*begun, lives.blocked())], start=1):
        place = stack.episode(lives.episode_id(number))
        await lives.write_events(pool, *events, stack=stack, subject=place)
    found = await rows.answer(pool, stack, "unended_by_actor")
    (row,) = found.as_rows()
    assert (row["queued"], row["running"], row["blocked"]) == (1, 1, 1)
