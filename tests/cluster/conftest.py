"""One cluster for all tests of this folder; each has a stack of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.three import Three


@pytest.fixture
async def three(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Three]:
    async with Three(tmp_path_factory.mktemp("three")) as three:
        yield three
