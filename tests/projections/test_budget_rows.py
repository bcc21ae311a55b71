"""What the latest episodes of an expectation used, and which budget would suit them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from projections.postgres import records as queries
from projections.project import project
from streams.model.events import EndStatus, Fork
from streams.model.triggers import Mode
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, write

DONE, FAILED = EndStatus.DONE, EndStatus.FAILED
OTHER = Fork(episode_id=lives.episode_id(1), step_no=0, by="ann")


@pytest.fixture
def lived(pool, stack):
    """Have an episode end, a minute later at each call."""
    told: list[int] = []

    async def live(turns=1, *, tokens=0, wall_ms=0, status=DONE, error_class="", **said):
        number = len(told) + 1
        told.append(number)
        end = replace(
            lives.finished(status, error_class=error_class),
            turns_used=turns,
            tokens_used=tokens,
            wall_used_ms=wall_ms,
        )
        events = (replace(lives.opened(number), **said), lives.started(), end)
        commit = Commit(id=f"c{number}", at=AT + timedelta(minutes=number), events=events)
        subject = stack.episode(lives.episode_id(number))
        record = Recorded(subject=subject, seq=number, commit=commit)
        await write(pool, project([record], stack=stack), stack=stack)

    return live


async def test_a_quarter_more_than_the_95th_percentile_would_suit_rounded_up(pool, stack, lived):
    for turns in (2, 4, 6, 8, 10):
        await lived(turns, tokens=100 * turns, wall_ms=1_000 * turns)
    (advice,) = await queries.budget_recommendations(pool, stack)
    assert (advice.actor_id, advice.expectation_id) == ("monitor", "check_disk")
    assert (advice.episodes, advice.budget["turns"]) == (5, 5)
    assert (advice.turns_p50, advice.turns_max) == (6, 10)
    assert advice.turns_p95 == pytest.approx(9.6)
    assert (advice.turns, advice.tokens, advice.wall_s) == (12, 1_200, 12)


async def test_fewer_than_five_episodes_are_no_ground_for_advice(pool, stack, lived):
    for _ in range(4):
        await lived(3)
    (advice,) = await queries.budget_recommendations(pool, stack)
    assert (advice.turns_p95, advice.turns, advice.tokens, advice.wall_s) == (3, None, None, None)


async def test_what_used_its_budget_up_counts_or_advice_would_only_shrink(pool, stack, lived):
    for _ in range(5):
        await lived(8, status=FAILED, error_class="budget_exceeded")
    (advice,) = await queries.budget_recommendations(pool, stack)
    assert (advice.episodes, advice.exhausted, advice.turns) == (5, 5, 10)


@pytest.mark.parametrize(
    "said",
    [
        {"status": FAILED, "error_class": "strategy_error"},
        {"status": EndStatus.CANCELED},
        {"mode": Mode.DRY_RUN},
        {"fork": OTHER},
    ],
)
async def test_what_did_not_come_to_its_own_end_is_no_evidence(pool, stack, lived, said):
    await lived(1, **said)
    assert await queries.budget_recommendations(pool, stack) == []


async def test_only_the_latest_hundred_count(pool, stack, lived):
    for turns in [50] * 10 + [4] * 100:
        await lived(turns)
    (advice,) = await queries.budget_recommendations(pool, stack)
    assert (advice.episodes, advice.turns_max, advice.turns) == (100, 4, 5)
    assert await queries.budget_recommendations(pool, stack, actor="nobody") == []
