"""A client of a stack, on the log in memory and on a server, with rows in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from streams import jetstream
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.databases import Database, database_in
from vigil.client import Client


@pytest.fixture(scope="session")
def postgres(postgres_server: EmbeddedPostgres) -> Database:
    """A database that every test here shares; stacks keep their rows apart."""
    return database_in(postgres_server)


@pytest.fixture
async def pool(postgres: Database) -> AsyncIterator[Pool]:
    """Connections to the tables."""
    async with await connect(postgres.dsn) as pool:
        await migrate(pool)
        yield pool


@pytest.fixture(params=["memory", "servers"])
async def ports(request: pytest.FixtureRequest, stack: Stack) -> AsyncIterator[Ports]:
    """The log of a stack of the test's own."""
    if request.param == "memory":
        yield memory_ports(stack=stack, clock=SystemClock())
        return
    async with jetstream.connect(request.getfixturevalue("nats").url, stack=stack) as served:
        yield served


@pytest.fixture
async def client(ports: Ports, pool: Pool) -> AsyncIterator[Client]:
    """Ann's client."""
    async with Client.on(ports, pool, by="ann") as client:
        yield client
