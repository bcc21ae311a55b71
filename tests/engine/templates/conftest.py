"""Every test has a log of its own, in memory."""

from __future__ import annotations

import pytest

from streams.memory import MemoryPorts
from tests.engine.stage import ports_in_memory


@pytest.fixture
def ports() -> MemoryPorts:
    return ports_in_memory()
