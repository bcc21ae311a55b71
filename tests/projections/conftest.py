"""One Postgres for the whole run, one schema for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from streams.clock import SystemClock
from streams.memory import MemoryPorts, memory_ports
from streams.subjects import Stack

_numbers = count(1)


@contextmanager
def open_directory() -> Iterator[Path]:
    """Make a directory that may be opened to others; pytest closes its own at every run."""
    with TemporaryDirectory(prefix="vigil-test-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A running Postgres that every test shares."""
    with open_directory() as directory, EmbeddedPostgres(directory) as server:
        yield server


@pytest.fixture
def directory() -> Iterator[Path]:
    """Where a test keeps a Postgres of its own."""
    with open_directory() as directory:
        yield directory


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
