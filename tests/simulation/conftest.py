"""The first worlds happen once, however many tests look at them: that is what costs time here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.simulation.world import History, happened
from tests.size import is_full, size

FEW: Final = 20
MANY: Final = 250
"""Enough to meet everything that may happen in a world; in a few there is most of it."""

WORLDS: Final = size("worlds", short=FEW, full=1_000)
"""How many worlds are tried."""

FIRST: Final = range(MANY if is_full("worlds") else FEW)
"""The seeds of the worlds that are kept."""


@pytest.fixture(scope="session")
def history_of() -> Callable[[int], History]:
    """Return what happened in the world of a seed."""
    kept: dict[int, History] = {}

    def found(seed: int) -> History:
        if seed not in FIRST:
            return happened(seed)
        if seed not in kept:
            kept[seed] = happened(seed)
        return kept[seed]

    return found


@pytest.fixture(scope="session")
def histories(history_of: Callable[[int], History]) -> Sequence[History]:
    """Return what happened in the first worlds."""
    return [history_of(seed) for seed in FIRST]
