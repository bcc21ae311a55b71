"""The whole table, in simulated time."""

from __future__ import annotations

from typing import Final

import pytest

from tests.gates.scenario import differences
from tests.gates.stage import play_simulated
from tests.gates.table import SCENARIOS

LATE_S_MAX: Final = 0.5
"""A few requests of up to 40 ms each, and what they may wait for each other."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_it_happens_as_the_table_says(scenario, tally):
    played = play_simulated(scenario, tally)
    assert differences(scenario, played, late_s_max=LATE_S_MAX) == []
    assert list(played.letters) == list(scenario.letters)
