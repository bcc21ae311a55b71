"""One tally for all scenarios: each has an actor of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gates.tally import Tally


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    tally = Tally()
    yield tally
    tally.close()
