"""Each contract runs on every implementation of the ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import pytest

from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.ports import Ports
from streams.subjects import Stack
from tests.contracts.foreign import MemoryOrders, Orders, ServerOrders

LEASE_TTL_S: Final = 1.0
"""The shortest lease the server allows: lapses come quickly."""

Publish: TypeAlias = Callable[[str, bytes, Mapping[str, str]], Awaitable[None]]


@pytest.fixture(params=["memory", "jetstream", "grouped"])
def adapter(request) -> str:
    """What is behind the ports. `grouped` is a server to which each message goes in a batch."""
    return request.param


@pytest.fixture
def server(request, adapter: str):
    """The server behind the ports; None in memory."""
    return None if adapter == "memory" else request.getfixturevalue("nats")


@pytest.fixture
async def ports(adapter: str, server, stack: Stack) -> AsyncIterator[Ports]:
    if server is None:
        yield memory_ports(stack=stack, clock=SystemClock(), lease_ttl_s=LEASE_TTL_S)
        return
    from streams.jetstream import GroupSettings, LinkSettings, connect  # noqa: PLC0415 - as above

    group = GroupSettings(least=0, is_fixed=True) if adapter == "grouped" else GroupSettings()
    settings = LinkSettings(lease_ttl_s=LEASE_TTL_S, partitions=stack.partitions, group=group)
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


@pytest.fixture
async def orders(server, ports, stack: Stack) -> AsyncIterator[Orders]:
    """A stream that is no stack's, on the same server."""
    name = f"ORDERS-{stack.name}"
    if server is None:
        yield MemoryOrders(ports.world.add_stream(name, captures=[f"{name}.>"]))
        return
    import nats  # noqa: PLC0415 - memory needs no NATS

    connection = await nats.connect(server.url)
    await connection.jetstream().add_stream(name=name, subjects=[f"{name}.>"])
    yield ServerOrders(connection.jetstream(), name)
    await connection.close()
