"""I1 to I6 at once, for half a minute. `make chaos` does it for as long as you like."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.chaos.faults import Fault, plan
from tests.chaos.run import Size, run

SEED: Final = 9
"""One whose few faults are of every kind."""

SMALL: Final = Size(episodes=90, functions=30, nodes=3, lease_s=2, during_s=8.0)


@pytest.mark.nightly
async def test_nothing_is_lost_doubled_or_stuck_whatever_breaks(tmp_path: Path):
    outcome = await run(tmp_path, SMALL, seed=SEED)

    assert outcome.verdict.faults() == []
    assert set(outcome.happened) == set(Fault)
    assert outcome.exercised["takeovers"] > 0
    assert outcome.exercised["functions_done"] == SMALL.functions


def test_a_seed_plans_the_same_faults_again():
    def planned(seed: int):
        return plan(seed, nodes=3, lease_s=2, during_s=30.0)

    assert planned(1) == planned(1)
    assert planned(1) != planned(2)
    assert [each.fault for each in planned(1)].count(Fault.RESTART) == 1
