"""One Postgres for the whole run, one schema for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from streams.clock import SystemClock
from streams.memory import MemoryPorts, memory_ports
from streams.subjects import Stack

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A running Postgres that every test shares."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def schema() -> str:
    """A schema that no other test uses, not made yet."""
    return f"test_{next(_numbers)}"


@pytest.fixture
async def bare_pool(postgres: EmbeddedPostgres, schema: str) -> AsyncIterator[Pool]:
    """Connections to a schema that is not made yet."""
    pool = await connect(postgres.dsn, schema=schema)
    yield pool
    await pool.close()


@pytest.fixture
async def pool(bare_pool: Pool) -> Pool:
    """Connections to an empty, migrated schema."""
    await migrate(bare_pool)
    return bare_pool


@pytest.fixture
def ports(stack: Stack) -> MemoryPorts:
    """A journal in memory; leases as short as a server allows."""
    return memory_ports(stack=stack, clock=SystemClock(), lease_ttl_s=1.0)
