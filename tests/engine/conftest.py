"""Every test has a log of its own, in memory, and a tally of what was ruled while it ran."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams.memory import MemoryPorts
from tests.engine.stage import ports_in_memory
from tests.gates.tally import Tally


@pytest.fixture
def ports() -> MemoryPorts:
    return ports_in_memory()


@pytest.fixture
def tally() -> Iterator[Tally]:
    tally = Tally()
    yield tally
    tally.close()
