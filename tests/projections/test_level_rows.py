"""What expectations promise and keep, in one view."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from projections.postgres import records as queries
from projections.project import project
from streams.model.events import EndStatus
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, only_row, write

LEVEL = ServiceLevel(start_s=5, end_s=60, success=0.75, window=4)
MET, LATE, FAILED = LevelOutcome.MET, LevelOutcome.LATE_END, LevelOutcome.FAILED


@pytest.fixture
def lived(pool, stack):
    """Have an episode start and end so many seconds after it was opened, the next one later."""
    told: list[int] = []

    async def live(outcome, *, start=1, end=2, level=LEVEL, **said):
        number = len(told) // 3 + 1
        begins = AT + timedelta(hours=number)
        opened = replace(lives.opened(number), service_level=level, **said)
        ended = lives.finished(EndStatus.DONE, service_level=outcome)
        for after_s, event in ((0, opened), (start, lives.started()), (end, ended)):
            told.append(1)
            at = begins + timedelta(seconds=after_s)
            commit = Commit(id=f"c{len(told)}", at=at, events=(event,))
            subject = stack.episode(opened.episode_id)
            record = Recorded(subject=subject, seq=len(told), commit=commit)
            await write(pool, project([record], stack=stack), stack=stack)

    return live


async def test_an_episode_shows_what_was_promised_and_what_came_of_it(pool, stack, lived):
    await lived(LATE)
    row = await only_row(pool, "episodes", stack=stack)
    assert row["level_outcome"] == "late_end"
    assert '"window": 4' in row["service_level"]


async def test_where_nothing_is_promised_there_is_no_level(pool, stack, lived):
    await lived(None, level=None)
    assert await queries.service_levels(pool, stack) == []


async def test_a_level_counts_what_came_of_the_latest_episodes(pool, stack, lived):
    for outcome in (FAILED, FAILED, MET, MET, None, LATE, MET):
        await lived(outcome)
    (level,) = await queries.service_levels(pool, stack)
    assert (level.actor_id, level.expectation_id) == ("monitor", "check_disk")
    assert (level.episodes, level.episodes_max) == (4, 4)
    assert (level.met, level.late_start, level.failed, level.late_end) == (3, 0, 0, 1)
    assert (level.ratio, level.success, level.is_kept) == (0.75, 0.75, True)
    assert (level.since, level.until) == (
        AT + timedelta(hours=3, seconds=2),
        AT + timedelta(hours=7, seconds=2),
    )


async def test_a_level_shows_how_long_episodes_take_from_their_opening(pool, stack, lived):
    for seconds in (10, 20, 30):
        await lived(MET, start=seconds / 10, end=seconds)
    (level,) = await queries.service_levels(pool, stack)
    assert (level.start_p50_s, level.end_p50_s) == (2, 20)
    assert (level.start_p95_s, level.end_p95_s) == (pytest.approx(2.9), pytest.approx(29))


async def test_what_was_promised_last_is_what_counts(pool, stack, lived):
    await lived(MET)
    await lived(LATE, level=replace(LEVEL, success=0.5, window=1))
    (level,) = await queries.service_levels(pool, stack)
    assert (level.episodes, level.ratio, level.success, level.is_kept) == (1, 0.0, 0.5, False)


async def test_levels_below_their_objective_come_first(pool, stack, lived):
    await lived(MET, expectation_id="a")
    await lived(FAILED, expectation_id="b")
    found = await queries.service_levels(pool, stack)
    assert [(level.expectation_id, level.is_kept) for level in found] == [("b", False), ("a", True)]
    assert await queries.service_levels(pool, stack, actor="nobody") == []
