"""Small commits and commands, and ways to wait for things with a bounded time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, TypeVar

from streams.model.commands import Start
from streams.model.events import StepAnnounced
from streams.model.foreign_streams import ForeignStream
from streams.ports.commands import CommandQueue
from streams.ports.delivery import Delivery, Source
from streams.ports.domain_events import DomainEvents
from streams.ports.log import Commit
from streams.ports.timers import Timers
from tests.streams.jetstream.wire import eventually

WAIT_S: Final = 10.0
"""Longest wait for something that must come, in seconds."""

SILENCE_S: Final = 0.3
"""How long to listen for something that must not come, in seconds."""

AT: Final = datetime(2030, 1, 1, tzinfo=UTC)

T = TypeVar("T")


def event(step_no: int, *, tool_name: str = "disk.read") -> StepAnnounced:
    return StepAnnounced(
        step_no=step_no, fingerprint="f", tool_name=tool_name, idempotency_key=f"k{step_no}"
    )


def commit(name: str, *step_nos: int, tool_name: str = "disk.read", trace: str = "") -> Commit:
    events = tuple(event(step_no, tool_name=tool_name) for step_no in step_nos or (1,))
    return Commit(id=name, at=AT, events=events, trace=trace)


def start(episode_id: str, *, actor: str = "monitor") -> Start:
    return Start(actor_id=actor, episode_id=episode_id)


async def collect(
    receive: Callable[[int, float], Awaitable[Sequence[T]]], *, count: int
) -> list[T]:
    """Return the next `count` arrivals, or fewer if one did not come for `WAIT_S`."""
    arrived: list[T] = []
    while len(arrived) < count:
        more = await receive(count - len(arrived), WAIT_S)
        if not more:
            break
        arrived.extend(more)
    return arrived


async def next_of(follower, count: int):
    """Return the next `count` of a follower or a watch."""
    return await collect(
        lambda most, wait_s: follower.receive(most=most, wait_s=wait_s), count=count
    )


async def deliveries_of(source: Source[T], count: int, *, spare: int = 0) -> list[Delivery[T]]:
    """Return the next `count` deliveries of a source; more only if there is `spare` room for them.

    Several queues that hardly have more than there is room for are asked in turn, a second each.
    """
    return await collect(
        lambda room, wait_s: source.receive(room=room + spare, wait_s=wait_s), count=count
    )


async def wait_backlog(
    port: CommandQueue | DomainEvents | Timers, backlog: int, *more: Sequence[ForeignStream]
) -> None:
    """Wait until so much is left for the actor `monitor`: answers take a moment to arrive."""

    async def is_left() -> bool:
        return await port.backlog("monitor", *more) == backlog

    await eventually(is_left)


@asynccontextmanager
async def opened(opening: Awaitable[Source[T]]) -> AsyncIterator[Source[T]]:
    source = await opening
    try:
        yield source
    finally:
        await source.close()
