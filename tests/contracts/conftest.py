"""Each contract runs on every implementation of the ports.

Some contracts have a second axis: over how many streams the stack is spread, or which bucket it is.
There `VIGIL_TEST_SIZE=contracts` (`make contracts`) runs every combination, and otherwise each test
runs on every adapter, and with every value of the other axis, on a server as well as in memory:

- Grouping is about how one message is stored in one stream. What reads, merges and carries over
  several streams never learns how a message was stored.
- The buckets of an adapter are one class. They differ in how long the marker of a lapse is kept,
  which is longer than any test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import product
from typing import Final, TypeAlias

import pytest

from streams.memory import memory_ports
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.contracts.foreign import MemoryOrders, Orders, ServerOrders
from tests.contracts.time import ContractClock, ContractLoop, running_loop
from tests.size import is_full

LEASE_TTL_S: Final = 1
"""The shortest lease the server allows: lapses come quickly."""

Publish: TypeAlias = Callable[[str, bytes, Mapping[str, str]], Awaitable[None]]


SERVED: Final = ("jetstream", "grouped")
"""With a server behind the ports. `grouped` is one to which each message goes in a batch."""

ADAPTERS: Final = ("memory", *SERVED)
"""What may be behind the ports. A module that knows more has a list of its own."""

SPREADS: Final = (("memory", 1), ("memory", 3), ("jetstream", 1), ("grouped", 3))
"""Adapters, and over how many streams what is behind them is spread. One stream and no fixed groups
are what most stacks have."""

BUCKETS: Final = (
    ("memory", "registry"),
    ("memory", "gates"),
    ("jetstream", "gates"),
    ("grouped", "registry"),
)

IS_ALL: Final = is_full("contracts")


def pytest_asyncio_loop_factories(config, item) -> Mapping[str, type[asyncio.AbstractEventLoop]]:
    return {"contract": ContractLoop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on every adapter, with what its second axis has for that one, if it has any."""
    axes = {"partitions": SPREADS, "bucket_name": BUCKETS}
    axis = next((name for name in axes if name in metafunc.fixturenames), None)
    if axis:
        metafunc.parametrize(("adapter", axis), pairs(axes[axis]), indirect=True)
    elif "adapter" in metafunc.fixturenames:
        adapters = getattr(metafunc.module, "ADAPTERS", ADAPTERS)
        metafunc.parametrize("adapter", adapters, indirect=True)


def pairs(chosen: Sequence[tuple[str, object]]) -> Sequence[tuple[str, object]]:
    values = dict.fromkeys(value for _, value in chosen)
    return list(product(ADAPTERS, values)) if IS_ALL else chosen


@pytest.fixture
def adapter(request) -> str:
    """What is behind the ports."""
    return request.param


@pytest.fixture
def partitions(request) -> int:
    """Over how many streams the journal and the work of the stack are spread."""
    return request.param


@pytest.fixture
def bucket_name(request) -> str:
    return request.param


@pytest.fixture
def server(request, adapter: str):
    """The server behind the ports; None in memory."""
    return request.getfixturevalue("nats") if adapter in SERVED else None


@pytest.fixture
async def ports(adapter: str, server, stack: Stack) -> AsyncIterator[Ports]:
    if server is None:
        running_loop().skip_waits()
        yield memory_ports(stack=stack, clock=ContractClock(), lease_ttl_s=LEASE_TTL_S)
        return
    async with served(server, stack, is_grouped=adapter == "grouped") as link:
        yield link


@pytest.fixture
async def plain_ports(ports: Ports, server, stack: Stack) -> AsyncIterator[Ports]:
    """Ports of the same stack, on which no message goes in a batch."""
    if server is None:
        yield ports
        return
    async with served(server, stack, is_grouped=False) as link:
        yield link


@asynccontextmanager
async def served(server, stack: Stack, *, is_grouped: bool) -> AsyncIterator[Ports]:
    from streams.jetstream import GroupSettings, LinkSettings, connect  # noqa: PLC0415 - as below

    group = GroupSettings(least=0, is_fixed=True) if is_grouped else GroupSettings()
    settings = LinkSettings(lease_ttl_s=LEASE_TTL_S, partitions=stack.partitions, group=group)
    async with connect(server.url, stack=stack, settings=settings) as link:
        yield link


@pytest.fixture
async def publish_raw(server, ports, stack: Stack) -> AsyncIterator[Publish]:
    """Publishes any bytes with any headers on a subject of the stack, as a stranger could."""
    if server is None:

        async def to_memory(subject: str, data: bytes, headers: Mapping[str, str]) -> None:
            if subject.startswith(f"{stack.name}.event."):
                ports.domain_events.publish_raw(stack.event_name_of(subject), data, headers)
            elif subject.startswith(f"{stack.name}.inbox."):
                ports.commands.publish_raw(subject, data, headers)
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
        yield MemoryOrders(ports.domain_events, name)
        return
    import nats  # noqa: PLC0415 - memory needs no NATS

    connection = await nats.connect(server.url)
    await connection.jetstream().add_stream(name=name, subjects=[f"{name}.>"])
    yield ServerOrders(connection.jetstream(), name)
    await connection.close()
