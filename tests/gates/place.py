"""Where a scenario is played: in simulated time, or on a real server.

In simulated time every request takes up to 40 ms, an hour costs nothing, and a process may be told
to die at its n-th chance. On a server each node has a connection of its own, and every second takes
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import nats
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from engine.app.app import App
from engine.node.node import Node
from streams.clock import Clock, SystemClock
from streams.jetstream import connect
from streams.memory import memory_ports
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.gates.scenario import Scenario
from tests.simulation.faults import Fault, Weather
from tests.simulation.life import Life, LifeClock
from tests.simulation.time import EPOCH
from tests.simulation.wire import Servers, wired


class Process(NamedTuple):
    """A node that runs."""

    node: Node
    running: asyncio.Task[bool]


class Place(Protocol):
    """Where a scenario is played."""

    begins: datetime
    clock: Clock
    ports: Ports
    """Of whoever is no node."""

    def process(self, app: App, name: str) -> AbstractAsyncContextManager[Process]:
        """Return a process, which ends without a word when the context does."""

    async def offer(self, subject: str, data: bytes) -> None:
        """Store a message in the stream that is no stack's."""


class Doom(Weather):
    """Nothing goes wrong but this: a process dies at the n-th chance there is to die."""

    def __init__(self, fatal: int = 0) -> None:
        super().__init__(fatal)
        self.clear_up()
        self.chances, self.fatal = 0, fatal

    def draw(self, *kinds: Fault) -> Fault | None:
        chance = next((kind for kind in kinds if kind in {Fault.DEAD, Fault.DEAD_AFTER}), None)
        self.chances += chance is not None
        return chance if chance is not None and self.chances == self.fatal else None


class Simulated:
    """See `Place`: ports in memory, with a network in between."""

    def __init__(self, scenario: Scenario, weather: Weather) -> None:
        self.begins = scenario.begins
        self._ahead_s = (scenario.begins - EPOCH).total_seconds()
        self.clock: Clock = LifeClock(Life("outside"), self._ahead_s)
        self.ports = memory_ports(clock=self.clock)
        self._servers = Servers(self.ports, weather)
        self._foreign = self.ports.domain_events.add_stream(scenario.stream)

    @asynccontextmanager
    async def process(self, app: App, name: str) -> AsyncIterator[Process]:
        life = Life(name, skew_s=self._ahead_s)
        node = Node(app, wired(life, self._servers), name=name, clock=life.clock)
        running = asyncio.create_task(node.run())
        life.on_death = running.cancel
        try:
            yield Process(node, running)
        finally:
            life.die()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def offer(self, subject: str, data: bytes) -> None:
        self._foreign.publish(subject, data, {})


@dataclass
class Served:
    """See `Place`: a stack of its own on a real server, on which the machine's time holds."""

    url: str
    ports: Ports
    foreign: JetStreamContext
    begins: datetime
    clock: Clock = field(default_factory=SystemClock)

    @asynccontextmanager
    async def process(self, app: App, name: str) -> AsyncIterator[Process]:
        async with connect(self.url, stack=self.ports.stack) as ports:
            node = Node(app, ports, name=name)
            running = asyncio.create_task(node.run())
            try:
                yield Process(node, running)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def offer(self, subject: str, data: bytes) -> None:
        await self.foreign.publish(subject, data)


@asynccontextmanager
async def serving(scenario: Scenario, *, url: str, stack: str) -> AsyncIterator[Served]:
    """Set up a place for `scenario` on the server at `url`: a new `stack`, and its stream anew."""
    client = await nats.connect(url)
    try:
        foreign = client.jetstream()
        await _make_anew(foreign, scenario.stream)
        async with connect(url, stack=Stack(stack)) as ports:
            yield Served(url, ports, foreign, _next_multiple(scenario.aligned_s))
    finally:
        await client.close()


async def _make_anew(foreign: JetStreamContext, stream: str) -> None:
    with suppress(NotFoundError):
        await foreign.delete_stream(stream)
    await foreign.add_stream(name=stream, subjects=[f"{stream}.>"])


def _next_multiple(seconds: int) -> datetime:
    """Return the next multiple of `seconds` since the epoch that is a second away or more."""
    return datetime.fromtimestamp((SystemClock().now().timestamp() // seconds + 2) * seconds, UTC)
