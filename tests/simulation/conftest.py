"""The first worlds happen once, however many tests look at them: that is what costs time here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.simulation.world import History, happened

FIRST: Final = range(125)
"""The seeds of the worlds that are kept: enough to meet everything that may happen in one."""


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
