"""The invariants hold, whatever goes wrong.

SIM_SEED=17 replays one world, VIGIL_TEST_SIZE=worlds=2000 tries more."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.simulation.conftest import FIRST, WORLDS
from tests.simulation.invariants import breaches

pytestmark = pytest.mark.timeout(600)
"""A test is 25 worlds, and may be the first to need all that are kept."""

SEEDS_PER_TEST: Final = 25

ALL: Final = (
    [range(int(os.environ["SIM_SEED"]), int(os.environ["SIM_SEED"]) + 1)]
    if "SIM_SEED" in os.environ
    else [range(at, min(at + SEEDS_PER_TEST, WORLDS)) for at in range(0, WORLDS, SEEDS_PER_TEST)]
)


def name_of(seeds: range) -> str:
    """Say which worlds they are, and whether others look at them, too: that makes one process of
    all who do."""
    return f"{'kept' if seeds.start in FIRST else 'worlds'} {seeds.start}..{seeds.stop - 1}"


@pytest.mark.parametrize("seeds", ALL, ids=name_of)
def test_every_invariant_survives_every_fault(seeds, history_of):
    for seed in seeds:
        history = history_of(seed)
        found = breaches(history)
        if found:
            told = [f"SIM_SEED={seed}", *found, "what happened:", *history.trace]
            pytest.fail("\n".join(told), pytrace=False)
