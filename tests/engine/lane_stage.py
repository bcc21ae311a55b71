"""A stage for episodes that take turns, and a place where a node can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from engine.app.actions import tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event, manual
from engine.lanes.lane import Lane, fold
from streams.layout import Stream
from streams.memory import MemoryPorts
from streams.memory.durable import Durable
from tests.engine.stage import HAPPENED, WAIT_S, Counter, Scripted, doomed, eventually, told
from tests.turns import Turns

CALL = tool_call("api", "do", {})


def laned(strategy=None, *, tools=None, most=5, cluster=1, thing=None, **limits) -> App:
    """Return an app of one actor `worker` whose episodes take turns, with one expectation."""
    actor = Actor(
        "worker",
        tools=tools,
        max_concurrent_episodes=most,
        max_concurrent_cluster=cluster,
        **limits,
    )
    options = {"on": [event(HAPPENED), manual()], **(thing or {})}
    actor.expect("thing", strategy or Scripted(), **options)
    return App(actors=[actor])


def placed(**limits) -> App:
    """Return the same app, whose episodes take a step: so each has a place in the lane."""
    return laned(Scripted(CALL), tools={"api": Counter()}, **limits)


async def lane_of(ports: MemoryPorts) -> Lane:
    return fold(await ports.log.read(ports.stack.lane("worker")))


async def lane_reached(ports: MemoryPorts, condition: Callable[[Lane], object]) -> Lane:
    """Wait until the lane is as `condition` wants it, and return it."""
    async with asyncio.timeout(WAIT_S), ports.log.follow(Stream.STATE) as follower:
        while not condition(lane := await lane_of(ports)):
            await follower.receive(most=1_000, wait_s=WAIT_S)
    return lane


async def begun(ports: MemoryPorts) -> None:
    """Wait until what is published waits for the lane."""
    await eventually(lambda: event_queues(ports))


def event_queues(ports: MemoryPorts) -> list[Durable]:
    """Return the queues of the actor's events."""
    queues = ports.domain_events._durables
    return [queue for name, queue in queues.items() if "worker" in name]


async def all_taken(ports: MemoryPorts) -> None:
    """Wait until every event has been acknowledged."""
    await eventually(lambda: not any(each.backlog for each in event_queues(ports)))


async def publish(ports: MemoryPorts, *names: str, **payload: object) -> None:
    for name in names:
        await ports.domain_events.publish(HAPPENED, dict(payload), id=name)


async def turns_of(ports: MemoryPorts, *, key: str = "k") -> Turns:
    turns = Turns(lambda opened: str(opened.trigger.payload.get(key, "")))
    async with ports.log.follow() as follower:
        turns.take(await follower.receive(most=100_000, wait_s=0))
    return turns


def news(ports: MemoryPorts, name: str) -> list[dict]:
    """Return the payloads of the public events of this name."""
    return [payload for said, payload in told(ports) if said == name]


class Point(NamedTuple):
    """One call of a port, at which a node can be killed."""

    port: str
    method: str
    when: Callable[..., bool]
    """Whether a call is the one, by its arguments."""
    is_done: bool = False
    """Whether it is killed only after the call."""


class Standstill:
    """A port that stands still for ever at one point."""

    def __init__(self, port: Any, point: Point) -> None:
        self._port, self._point = port, point
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._port, name)
        return partial(self._call, real) if name == self._point.method else real

    async def _call(self, real: Callable[..., Awaitable[Any]], *args: Any, **more: Any) -> Any:
        is_there = self._point.when(*args, **more)
        if is_there and not self._point.is_done:
            await self._stand()
        result = await real(*args, **more)
        if is_there:
            await self._stand()
        return result

    async def _stand(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def killed_at(app: App, ports: MemoryPorts, point: Point) -> AsyncIterator[None]:
    """A node that works until it stands still at a point, and is killed there."""
    still = Standstill(getattr(ports, point.port), point)
    async with doomed(app, replace(ports, **{point.port: still})):
        await begun(ports)
        yield
        async with asyncio.timeout(WAIT_S):
            await still.reached.wait()
