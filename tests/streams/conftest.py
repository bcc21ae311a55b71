"""Servers and wires that one test may break."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from streams.jetstream import LinkSettings, connect
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.streams.jetstream.wire import Wire

SETTINGS: Final = LinkSettings(lease_ttl_s=5, patience_s=20.0)


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[EmbeddedNats]:
    """A server of this test's own, to kill, freeze and restart."""
    with EmbeddedNats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def wire(nats: EmbeddedNats) -> AsyncIterator[Wire]:
    """A wire to the shared server."""
    async with Wire(nats.url) as wire:
        yield wire


@pytest.fixture
async def direct(nats: EmbeddedNats, stack: Stack) -> AsyncIterator[Ports]:
    """Ports that reach the shared server without the wire."""
    async with connect(nats.url, stack=stack, settings=SETTINGS) as ports:
        yield ports


@pytest.fixture
async def wired(wire: Wire, direct: Ports, stack: Stack) -> AsyncIterator[Ports]:
    """Ports that reach the shared server through the wire."""
    async with connect(wire.url, stack=stack, settings=SETTINGS) as ports:
        yield ports


@pytest.fixture
async def ports(own_nats: EmbeddedNats, stack: Stack) -> AsyncIterator[Ports]:
    """Ports on the test's own server."""
    async with connect(own_nats.url, stack=stack, settings=SETTINGS) as ports:
        yield ports
