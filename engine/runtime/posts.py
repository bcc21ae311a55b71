"""Which doers one actor has on a node, and the permit that each of them needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engine.runtime.alarms import Alarms
from engine.runtime.arbiter import Arbiter
from engine.runtime.dispatcher import Dispatcher
from engine.runtime.drainer import Drainer, open_events, open_feed
from engine.runtime.entrance import Entrance
from engine.runtime.feed_gate import FeedGate
from engine.runtime.gate import Gate
from engine.runtime.hands import Hands
from engine.runtime.keeper import Keeper
from engine.runtime.listener import Listener
from engine.runtime.output_crew import OutputCrew
from engine.runtime.permit import Permit
from engine.runtime.presence import Roster
from engine.runtime.runner import Runner
from engine.runtime.undertaker import Undertaker
from engine.runtime.vacancies import Vacancies
from engine.runtime.waker import Waker
from engine.workflows.starter import workflow_of


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


def posts_of(
    crew: OutputCrew,
    keeper: Keeper,
    undertaker: Undertaker,
    hands: Hands,
    *,
    roster: Roster,
    vacancies: Vacancies,
) -> list[Post]:
    """Return the posts of one actor: what wakes it, and what runs it."""
    wakes, runs = crew.permits.wakes, crew.permits.runs
    runner = Post(Runner(crew, keeper, undertaker, hands), runs)
    listener = Post(Listener(crew, keeper, undertaker, hands), runs)
    if crew.is_laned:
        dispatcher = partial(Dispatcher, crew, keeper, undertaker, roster, vacancies)
        return [
            Post(dispatcher(takes_causes=True), wakes),
            Post(dispatcher(takes_causes=False), runs),
            runner,
            listener,
        ]
    entrance = Entrance(crew, keeper, undertaker, hands, Arbiter(crew))
    alarms, tends = Alarms(entrance.arbiter), crew.permits.tends
    return [
        Post(Gate(entrance, partial(open_events, crew), "events"), wakes),
        *(Post(FeedGate(entrance, feed, open_feed), wakes) for feed in crew.actor.feeds()),
        Post(Waker(entrance, alarms, wakes, takes_causes=True), wakes),
        Post(Waker(entrance, alarms, tends, takes_causes=False), tends),
        Post(Drainer(crew, keeper, vacancies), runs),
        runner,
        listener,
    ]


def closed_posts_of(
    crew: OutputCrew,
    keeper: Keeper,
    undertaker: Undertaker,
    hands: Hands,
    *,
    roster: Roster,
    vacancies: Vacancies,
) -> list[Post]:
    """Return the posts of one who stands in: nothing wakes the actor, and what is open goes on.

    Of a workflow nothing is run: what it was to begin is for a node that has it.
    """
    runs = crew.permits.runs
    runner = Post(Runner(crew, keeper, undertaker, hands), runs)
    listener = Post(Listener(crew, keeper, undertaker, hands), runs)
    if crew.is_laned:
        dispatcher = Dispatcher(crew, keeper, undertaker, roster, vacancies, takes_causes=False)
        return [Post(dispatcher, runs), runner, listener]
    entrance = Entrance(crew, keeper, undertaker, hands, Arbiter(crew))
    waker = Post(Waker(entrance, Alarms(entrance.arbiter), runs, takes_causes=False), runs)
    return [waker] if workflow_of(crew.actor.id) is not None else [waker, runner, listener]
