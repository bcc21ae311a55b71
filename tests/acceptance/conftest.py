"""A cluster for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.cluster import Cluster
from tests.databases import Database


@pytest.fixture
async def cluster(tmp_path: Path, database: Database) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, database=database) as cluster:
        yield cluster
