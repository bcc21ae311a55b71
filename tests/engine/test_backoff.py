"""How long one waits before trying again."""

from __future__ import annotations

import pytest

from engine.validation import backoff_s, jittered_s


@pytest.mark.parametrize(("tries", "pause_s"), [(1, 0.5), (2, 1.0), (4, 4.0), (5, 5.0), (9_999, 5)])
def test_a_pause_doubles_up_to_the_longest(tries, pause_s):
    assert backoff_s(tries, first_s=0.5, most_s=5.0) == pause_s


def test_a_jittered_pause_is_the_same_for_the_same_seed():
    assert jittered_s(1.0, seed="a") == jittered_s(1.0, seed="a") != jittered_s(1.0, seed="b")


def test_jittered_pauses_lie_between_half_and_all_of_it():
    pauses = [jittered_s(2.0, seed=str(seed)) for seed in range(1_000)]
    assert 1.0 <= min(pauses) < 1.1
    assert 1.9 < max(pauses) < 2.0
