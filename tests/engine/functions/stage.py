"""Builders for functions: apps of one function, and journals that end in the middle of a life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.tools import Tool, ToolFailed
from engine.app.triggers import event
from streams.memory import memory_ports
from streams.model.events import EpisodeEvent, EpisodeFinished, EpisodeOpened, EpisodeStarted
from streams.ports.objects import ObjectStore
from tests.engine.stage import CLOCK, HAPPENED, Life, leave, lived, open_episode, running


class Ledger(Tool):
    """Counts the calls of each action; an action is a failure if it is called `fail`."""

    def __init__(self, *, side_effect: bool = False, idempotent: bool = False) -> None:
        self.side_effect, self.idempotent = side_effect, idempotent
        self.calls: list[str] = []
        self.keys: list[str] = []

    async def call(self, action, args, ctx):
        self.calls.append(action)
        self.keys.append(ctx.idempotency_key)
        if action == "fail":
            raise ToolFailed("busy", "try later")
        return {"did": action, **args}


def app_of(function, *, tools=None, outputs=None, synthesizer=None, **options) -> App:
    """Return an app of one actor `worker` whose one expectation `thing` is `function`."""
    actor = Actor("worker", synthesizer=synthesizer)
    actor.expect("thing", function, **{"on": event(HAPPENED), **options})
    return App(actors=[actor], tools=tools or {}, outputs=outputs)


async def play(function, *, reached=None, ports=None, **declared) -> Life:
    """Run one episode of `function` from its opening to its end, and return its life."""
    ports = ports or memory_ports(clock=CLOCK)  # Nobody dies, so no lease is to lapse soon.
    app = app_of(function, **declared)
    async with running(app, ports):
        return await lived(ports, await open_episode(ports, app), reached)


async def resume(
    app: App, events: Sequence[EpisodeEvent], *, objects: ObjectStore | None = None
) -> Life:
    """Return the life of an episode whose node died after `events`, continued by another one.

    That is until it ends, or waits for other code. `objects` has what `events` refer to.
    """
    ports = memory_ports(clock=CLOCK)
    if objects is not None:
        ports = replace(ports, objects=objects)
    episode_id = await leave(ports, app, *events)
    async with running(app, ports):
        return await lived(ports, episode_id, lambda life: life.parked or life.episode.finished)


def middle(life: Life) -> list[EpisodeEvent]:
    """Return the events of `life` between its start and its end."""
    ends = EpisodeOpened, EpisodeStarted, EpisodeFinished
    return [each for each in life.events if not isinstance(each, ends)]
