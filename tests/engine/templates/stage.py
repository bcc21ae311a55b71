"""Episodes of templates on a real node: an app with a gatherer, and what its one episode left."""

from __future__ import annotations

from msgspec.structs import replace

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event
from streams.memory import MemoryPorts
from streams.model.events import EpisodeOpened
from streams.ports.domain_events import DomainEvent
from tests.engine.stage import (
    HAPPENED,
    Life,
    ask_start,
    lived,
    opening,
    ports_in_memory,
    running,
    write,
)


class Facts:
    """A gatherer that has its answer ready, and remembers what it was asked."""

    def __init__(self, answer: object):
        self.answer, self.asked = answer, []

    async def gather(self, payload, options):
        self.asked.append((payload, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def app_of(strategy, facts: Facts, *, synthesizer=None, outputs=None, **declared) -> App:
    """Return an app whose only expectation has a strategy that asks `facts`."""
    actor = Actor("worker", synthesizer=synthesizer)
    actor.expect("thing", strategy, **{"on": event(HAPPENED), **declared})
    return App(actors=[actor], gatherers={"facts": facts.gather}, outputs=outputs)


def opened_for(app: App, payload=None, *, entity_id="web-1", **changed) -> EpisodeOpened:
    """Return what opens an episode of `app` about `entity_id`."""
    opened = opening(app, payload=payload)
    return replace(opened, trigger=replace(opened.trigger, entity_id=entity_id, hops=3), **changed)


async def play(app: App, opened: EpisodeOpened, *, ports: MemoryPorts | None = None) -> Life:
    """Run one episode of `app` from its opening to its end."""
    ports = ports or ports_in_memory()
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        return await lived(ports, opened.episode_id)


def published(ports: MemoryPorts, name: str) -> list[DomainEvent]:
    """Return the domain events of that name, in order."""
    (stream,) = (each for each in ports.log._streams.values() if each.name.endswith("-events"))
    events = [ports.domain_events._parse(message) for message in stream.past(0)]
    return [each for each in events if each.name == name]
