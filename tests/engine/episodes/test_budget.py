"""What an episode may use."""

from __future__ import annotations

import pytest

from engine.episodes.episode import overspent
from streams.model.triggers import Budget

SMALL = Budget(turns=3, tokens=100, wall_s=2.5)


def test_a_budget_with_room_for_a_turn_is_not_spent():
    assert overspent(SMALL, turns=2, tokens=99, wall_s=2.4) is None


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ({"turns": 3}, "turns: 3 used of 3"),
        ({"turns": 7}, "turns: 7 used of 3"),
        ({"tokens": 100}, "tokens: 100 used of 100"),
        ({"tokens": 4_000}, "tokens: 4000 used of 100"),
        ({"wall_s": 2.5}, "wall_s: 2.500 used of 2.5"),
    ],
)
def test_a_spent_limit_is_named_with_what_was_used(used, said):
    spent = overspent(SMALL, **{"turns": 0, "tokens": 0, "wall_s": 0.0, **used})
    assert (spent.limit, spent.detail) == (next(iter(used)), said)


@pytest.mark.parametrize("none", [0, -1])
def test_a_limit_of_zero_or_less_is_no_limit(none):
    endless = Budget(turns=none, tokens=none, wall_s=none)
    assert overspent(endless, turns=10**9, tokens=10**9, wall_s=1e9) is None


def test_by_default_an_episode_has_twelve_turns_25000_tokens_and_two_minutes():
    assert Budget() == Budget(turns=12, tokens=25_000, wall_s=120.0)
