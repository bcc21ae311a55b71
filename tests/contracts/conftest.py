"""Each contract runs on every implementation of the ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import pytest

from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.ports import Ports
from streams.subjects import Stack

LEASE_TTL_S: Final = 1.0
"""The shortest lease the server allows: lapses come quickly."""

Publish: TypeAlias = Callable[[str, bytes, Mapping[str, str]], Awaitable[None]]


@pytest.fixture(params=["memory", "jetstream"])
def server(request):
    """The server behind the ports; None in memory."""
    return None if request.param == "memory" else request.getfixturevalue("nats")


@pytest.fixture
async def ports(server, stack: Stack) -> AsyncIterator[Ports]:
    if server is None:
        yield memory_ports(stack=stack, clock=SystemClock(), lease_ttl_s=LEASE_TTL_S)
        return
    from streams.jetstream import LinkSettings, connect  # noqa: PLC0415 - memory needs no NATS

    settings = LinkSettings(lease_ttl_s=LEASE_TTL_S)
    async with connect(server.url, stack=stack, settings=settings) as link:
        yield link


@pytest.fixture
async def publish_raw(server, ports, stack: Stack) -> AsyncIterator[Publish]:
    """Publishes any bytes with any headers on a subject of the stack, as a stranger could."""
    if server is None:

        async def to_memory(subject: str, data: bytes, headers: Mapping[str, str]) -> None:
            if subject.startswith(f"{stack.name}.event."):
                ports.world.publish_raw(stack.event_name_of(subject), data, headers)
            elif subject.startswith(f"{stack.name}.inbox."):
                ports.inbox.publish_raw(subject, data, headers)
            else:
                ports.log.publish_raw(subject, data, headers)

        yield to_memory
        return
    import nats  # noqa: PLC0415 - memory needs no NATS

    connection = await nats.connect(server.url)

    async def to_server(subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        await connection.jetstream().publish(subject, data, headers=dict(headers))

    yield to_server
    await connection.close()
