"""Which doers one actor has on a node, and the permit that each of them needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engine.runtime.admission import Admission
from engine.runtime.alarms import Alarms
from engine.runtime.arbiter import Arbiter
from engine.runtime.crew import Crew
from engine.runtime.gate import Gate
from engine.runtime.hands import Hands
from engine.runtime.keeper import Keeper
from engine.runtime.permit import Permit
from engine.runtime.runner import Runner
from engine.runtime.undertaker import Undertaker
from engine.runtime.waker import Waker
from streams.delivery import Source, Unreadable
from streams.world import DomainEvent, Feed


class Server(Protocol):
    """A doer that takes work from a queue."""

    @property
    def is_open(self) -> asyncio.Event:
        """Set once its queue is open."""

    async def serve(self) -> None:
        """Take work until it may no longer."""


@dataclass(frozen=True)
class Post:
    """A doer at its place."""

    doer: Server
    permit: Permit
    """Without it the doer takes no work."""

    async def serve(self) -> None:
        """Have the doer take work whenever it may, until it never may again."""
        while await self.permit.wait_given():
            await self.doer.serve()


def posts_of(crew: Crew, keeper: Keeper, undertaker: Undertaker, hands: Hands) -> list[Post]:
    """Return the posts of one actor: what wakes it, and what runs it."""
    admission = Admission(crew, keeper, undertaker, hands, Arbiter(crew))
    wakes = crew.permits.wakes
    return [
        Post(Gate(admission, _own_events(crew), "events"), wakes),
        *(Post(_gate_to(admission, feed), wakes) for feed in crew.actor.feeds()),
        Post(Waker(admission, Alarms(admission.arbiter)), wakes),
        Post(Runner(crew, keeper, undertaker, hands), crew.permits.runs),
    ]


def _own_events(crew: Crew) -> Callable[[], Awaitable[Source[DomainEvent | Unreadable]]]:
    return partial(crew.ports.world.open, crew.actor.id, crew.actor.event_names())


def _gate_to(admission: Admission, feed: Feed) -> Gate:
    crew = admission.crew
    opening = partial(crew.ports.world.open_feed, crew.actor.id, feed)
    return Gate(admission, opening, feed.stream)
