"""Plays a scenario in one place, with the engine's own nodes, and says what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from engine.cluster.nodes import NodeInfo
from engine.episodes.fire import fire
from engine.node.node import Node
from streams.keys import node_key
from streams.layout import Stream
from streams.model.events import (
    DeadLettered,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
)
from streams.model.triggers import EventTrigger, ManualTrigger, Mode, ScheduleTrigger
from tests.gates.place import Doom, Place, Simulated, serving
from tests.gates.scenario import (
    NEVER,
    Ask,
    Deed,
    Kill,
    Offer,
    Played,
    Publish,
    Republish,
    Scenario,
    Seen,
    Start,
    Stop,
)
from tests.gates.tally import Tally
from tests.simulation.time import simulate
from tests.standing import standing

DOWN_S: Final = 0.5
"""How long a process that died by chance is gone, in seconds."""

LOOK_S: Final = 0.05
"""How long a test waits before it looks again at a server, or at a node, in seconds."""

READY_WITHIN_S: Final = 0.6
"""How long a node may take until it hears what is published, in seconds: the table leaves 1 s."""


@dataclass
class Cast:
    """The processes of one scenario. One that dies by chance is replaced."""

    place: Place
    scenario: Scenario
    starting: dict[str, datetime] = field(default_factory=dict)
    """When each process was started that is not known to hear anything yet."""
    _nodes: dict[str, Node] = field(default_factory=dict)
    _kept: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        self.starting[name] = self.place.clock.now()
        self._kept[name] = asyncio.create_task(self._keep(name))

    async def stop(self, name: str) -> None:
        while name not in self._nodes:  # On a slow machine it may still be starting.
            await self.place.clock.sleep(LOOK_S)
        self.starting.pop(name, None)
        self._nodes[name].stop()
        await self._kept.pop(name)

    async def kill(self, name: str) -> None:
        self.starting.pop(name, None)
        kept = self._kept.pop(name)
        kept.cancel()
        await asyncio.gather(kept, return_exceptions=True)

    async def end(self) -> None:
        for name in list(self._kept):
            await self.kill(name)

    async def _keep(self, name: str) -> None:
        while await self._dies(name):
            await self.place.clock.sleep(DOWN_S)

    async def _dies(self, name: str) -> bool:
        """Run one process to its end; return whether that came by chance."""
        async with self.place.process(self.scenario.app(), name) as process:
            self._nodes[name] = process.node
            await asyncio.wait({process.running})
            return process.running.cancelled()


@dataclass
class Stage:
    """One scenario in one place."""

    scenario: Scenario
    place: Place
    catalog: Cast = field(init=False)
    late_s: float = 0.0
    _published: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = Cast(self.place, self.scenario)

    async def play(self) -> None:
        """Let happen what the scenario says, and end all processes when it is over."""
        await self._open_queues()
        for deed in self.scenario.before:
            await self._do(deed)
        try:
            await self._wait(0.0)
            for name in self.scenario.nodes:
                self.catalog.start(name)
            for at_s, deed in self.scenario.happens:
                await self._wait(at_s)
                await self._do(deed)
            await self._wait(self.scenario.until_s)
        finally:
            await self.catalog.end()

    async def look_how_late(self) -> None:
        """Note how slow the machine is to store something, and to start a node, until cancelled."""
        clock = self.place.clock
        while True:
            began_s = clock.monotonic_s()
            await self.place.ports.gates.put("tests.look", b"")
            await clock.sleep(LOOK_S)
            self.late_s = max(self.late_s, clock.monotonic_s() - began_s - LOOK_S)
            for name, since in list(self.catalog.starting.items()):
                await self._look_if_ready(name, since)

    async def _look_if_ready(self, name: str, since: datetime) -> None:
        took_s = (self.place.clock.now() - since).total_seconds()
        self.late_s = max(self.late_s, took_s - READY_WITHIN_S)
        entry = await self.place.ports.gates.get(node_key(name))
        info = entry and msgspec.json.decode(entry.value, type=NodeInfo)
        if info and info.since >= since and self.scenario.actor in info.actors:
            self.catalog.starting.pop(name, None)

    async def opened(self) -> list[Seen]:
        """Return what was opened, in the order of the journal."""
        lives: dict[str, list[tuple[datetime, LogEvent]]] = {}
        for record in await standing(self.place.ports.log):
            life = lives.setdefault(record.subject, [])
            life += [(record.commit.at, event) for event in record.commit.events]
        return [
            self._seen(life) for life in lives.values() if isinstance(life[0][1], EpisodeOpened)
        ]

    async def ended(self) -> int:
        """Return how many ends of episodes there are."""
        return sum(
            isinstance(event, EpisodeFinished) for event in await self._events(Stream.JOURNAL)
        )

    async def letters(self) -> list[str]:
        """Return the reasons of the dead letters."""
        events = await self._events(Stream.DEAD)
        return [event.reason for event in events if isinstance(event, DeadLettered)]

    async def _open_queues(self) -> None:
        """An actor that nobody ever ran hears nothing; this one has been run before."""
        (actor,) = self.scenario.app().actors.values()
        await (await self.place.ports.domain_events.open(actor.id, actor.event_names())).close()

    async def _wait(self, at_s: float) -> None:
        """Wait for a time of the scenario, and note how late it is then."""
        while (left_s := at_s - self._since(self.place.clock.now())) > 0:
            await self.place.clock.sleep(left_s)
        self.late_s = max(self.late_s, -left_s)

    async def _do(self, deed: Deed) -> None:
        world = self.place.ports.domain_events
        match deed:
            case Publish(id=id_, payload=payload, name=name, hops=hops):
                self._published.append(await world.publish(name, payload, id=id_, hops=hops))
            case Republish(nth=nth):
                again = f"again {len(self._published)}"
                self._published.append(await world.republish(self._published[nth], id=again) or 0)
            case Offer(subject=subject, payload=payload):
                data = msgspec.json.encode(payload)
                await self.place.offer(f"{self.scenario.stream}.{subject}", data)
            case Ask():
                await self._ask(deed)
            case Start(node=node):
                self.catalog.start(node)
            case Stop(node=node):
                await self.catalog.stop(node)
            case Kill(node=node):
                await self.catalog.kill(node)

    async def _ask(self, asked: Ask) -> None:
        due_s = asked.due_s
        await fire(
            self.place.ports,
            self.scenario.actor,
            "thing",
            asked.payload,
            by="tests",
            reason=asked.key,
            key=asked.key,
            at=None if due_s is None else self.place.begins + timedelta(seconds=due_s),
            dry_run=asked.dry_run,
            priority=asked.priority,
        )

    async def _events(self, stream: Stream) -> Sequence[LogEvent]:
        records = await standing(self.place.ports.log, stream)
        return [event for each in records for event in each.commit.events]

    def _seen(self, life: Sequence[tuple[datetime, LogEvent]]) -> Seen:
        at, opened = life[0]
        assert isinstance(opened, EpisodeOpened)

        def look(name: str) -> object:
            return getattr(opened.trigger if hasattr(opened.trigger, name) else opened, name)

        begun = (self._since(when) for when, event in life if isinstance(event, EpisodeStarted))
        ends = (event for _, event in life if isinstance(event, EpisodeFinished))
        end = next((each.error_class or each.status.value for each in ends), "")
        return Seen(self._since(at), self._cause(opened), look, next(begun, NEVER), end)

    def _cause(self, opened: EpisodeOpened) -> str:
        match opened.trigger:
            case EventTrigger(event_id=event_id, stream=""):
                return event_id
            case EventTrigger(event_type=subject):
                return subject.partition(".")[2]
            case ScheduleTrigger(scheduled_at=at, entity_id=about):
                return f"tick+{self._since(at):g} {about}".rstrip()
            case ManualTrigger(reason=key):
                return f"fire {key}, dry" if opened.mode is Mode.DRY_RUN else f"fire {key}"
            case _:
                raise AssertionError(f"no scenario has such a trigger: {opened.trigger}")

    def _since(self, at: datetime) -> float:
        return (at - self.place.begins).total_seconds()


def play_simulated(scenario: Scenario, tally: Tally, *, doom: Doom | None = None) -> Played:
    """Return what comes of a scenario in simulated time; with `doom`, if a process dies then."""

    async def play() -> Played:
        return await _played(Stage(scenario, Simulated(scenario, doom or Doom())), tally)

    return simulate(play())


async def play_served(scenario: Scenario, tally: Tally, *, url: str, stack: str) -> Played:
    """Return what comes of a scenario on the server at `url`, in a new `stack`."""
    async with serving(scenario, url=url, stack=stack) as place:
        stage = Stage(scenario, place)
        looking = asyncio.create_task(stage.look_how_late())
        try:
            return await _played(stage, tally)
        finally:
            looking.cancel()


async def _played(stage: Stage, tally: Tally) -> Played:
    actor = stage.scenario.actor
    before = tally.of(actor)
    await stage.play()
    return Played(
        opened=await stage.opened(),
        ended=await stage.ended(),
        counted=tally.of(actor) - before,
        late_s=stage.late_s,
        letters=await stage.letters(),
    )
