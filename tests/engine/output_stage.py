"""A stage for outputs, in simulated time: adapters that misbehave, and nodes that may die.

Nodes are the real ones, on ports in memory with a network in between. A node that dies, at its n-th
chance if a story says so, is replaced by another one. Backoff, expiry and leases cost no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from engine.app.actions import Step
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import raise_finding
from engine.app.outputs import DeliveryFailed, OutputAdapter, OutputView
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event
from engine.node.node import Node
from engine.outputs.output import Output, fold
from engine.reactor.position import published
from engine.reactor.reactor import followed
from streams.layout import Stream
from streams.memory import MemoryPorts, memory_ports
from streams.memory.stream import MemoryStream
from streams.model.events import DeadLettered, EpisodeFinished, FindingEvent, LogEvent
from streams.model.outputs import OutputIntent
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Recorded
from streams.wire.messages import parse_commit
from tests.engine.stage import HAPPENED, Life, Scripted, claims, life, opening
from tests.gates.place import Doom
from tests.simulation.faults import Fault
from tests.simulation.life import Life as ProcessLife
from tests.simulation.time import SimClock, simulate
from tests.simulation.wire import Servers, wired

T = TypeVar("T")

STREAMS: Final = {"dead_letter": Stream.DEAD, "finding": Stream.STATE}
"""Where the commits are that public events follow from, by the first word of their names."""

LOOK_S: Final = 0.1
"""Between two looks for what must come, in simulated seconds."""

LOOKS_MAX: Final = 20_000
"""Most looks: half an hour of simulated time."""

DOWN_S: Final = 0.5
"""How long a node that died is gone."""


class Frost(Doom):
    """Nothing goes wrong but this: a process stands still, at the n-th chance there is to."""

    def draw(self, *kinds: Fault) -> Fault | None:
        chance = next((each for each in kinds if each in {Fault.FROZEN, Fault.FROZEN_AFTER}), None)
        self.chances += chance is not None
        return chance if chance is not None and self.chances == self.fatal else None

    def between(self, least: float, most: float) -> float:
        """Return the most: longer than any lease, if it is for how long to stand still."""
        return most


Behaviour = str | Exception | Callable[[OutputView], Awaitable[str | None]]


class Pager(OutputAdapter):
    """Does at each call what it was told to, and delivers from then on."""

    def __init__(self, *plan: Behaviour) -> None:
        self.plan = list(plan)
        self.views: list[OutputView] = []
        self.accepted: list[OutputView] = []
        self.opened = self.closed = 0

    @property
    def keys(self) -> set[str]:
        return {view.idempotency_key for view in self.views}

    async def open(self, ports) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def deliver(self, output: OutputView) -> str | None:
        self.views.append(output)
        does = self.plan.pop(0) if self.plan else f"ref-{len(self.views)}"
        if isinstance(does, Exception):
            raise does
        self.accepted.append(output)
        return does if isinstance(does, str) else await does(output)


def busy(**said: object) -> DeliveryFailed:
    return DeliveryFailed("busy", "try later", **said)


def broken() -> DeliveryFailed:
    return DeliveryFailed("gone", "for good", permanent=True)


class Proposing(Scripted):
    """Does its plan, and converges with outputs and perhaps a finding."""

    def __init__(self, *plan: Step, outputs: Sequence[OutputIntent] = (), finds: bool = False):
        findings = [raise_finding("disk", class_="full")] if finds else []
        super().__init__(*plan, findings=findings)
        self.outputs = outputs

    def converge(self, state, ctx):
        result = super().converge(state, ctx)
        return ConvergeResult(
            classification=result.classification, findings=result.findings, outputs=self.outputs
        )


def app_of(
    strategy: Scripted, outputs: dict[str, object], *, most: int = 10, **declared: object
) -> App:
    """Return an app of one actor `worker` with one expectation `thing`."""
    actor = Actor("worker", max_concurrent_episodes=most)
    actor.expect("thing", strategy, **{"on": event(HAPPENED), **declared})
    return App(actors=[actor], outputs=outputs)


@dataclass
class Scene:
    """One stack, and who is on it."""

    app: App
    weather: Doom
    skew_s: float = 0.0
    clock: SimClock = field(default_factory=SimClock)
    ports: MemoryPorts = field(init=False)
    """Of whoever is no node."""
    nodes: dict[str, Node] = field(default_factory=dict)
    _lives: dict[str, ProcessLife] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = memory_ports(clock=self.clock)
        self.servers = Servers(self.ports, self.weather)

    @asynccontextmanager
    async def node(self, name: str = "n1", *, app: App | None = None):
        """A node that is replaced whenever it dies, while the context lasts.

        `app` None: it runs what the others run.
        """
        keeping = asyncio.create_task(self._keep(name, app or self.app))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def kill(self, name: str = "n1") -> None:
        self._lives[name].die()

    async def _keep(self, name: str, app: App) -> None:
        while True:
            self._lives[name] = process = ProcessLife(name, skew_s=self.skew_s)
            self.nodes[name] = Node(
                app, wired(process, self.servers), name=name, clock=process.clock
            )
            running = asyncio.create_task(self.nodes[name].run())
            process.on_death = running.cancel
            try:
                await asyncio.wait({running})
            finally:
                process.die()
                await asyncio.gather(running, return_exceptions=True)
            await self.clock.sleep(DOWN_S)

    async def open(self, id_: str = "x1") -> str:
        """Publish the event that opens an episode, and return the episode's id."""
        await self.ports.domain_events.publish(HAPPENED, {}, id=id_)
        return opening(self.app, id_=id_).episode_id

    async def life(self, episode_id: str) -> Life:
        return await life(self.ports, episode_id)

    async def output(self, key: str) -> Output:
        return fold(await self.records(key))

    async def records(self, key: str) -> Sequence[Recorded]:
        return await self.ports.log.read(self.ports.stack.output(key))

    async def until(self, condition: Callable[[], Awaitable[object]]) -> None:
        """Wait in simulated time until `condition` holds."""
        for _ in range(LOOKS_MAX):
            if await condition():
                return
            await self.clock.sleep(LOOK_S)
        raise AssertionError("it never came about")

    async def ended(self, episode_id: str) -> Life:
        """Wait until an episode has ended, and the world was told of it."""

        async def has_ended() -> bool:
            # A claim is given up last.
            is_over = (await self.life(episode_id)).of(EpisodeFinished)
            return bool(is_over) and not claims(self.ports)

        await self.until(has_ended)
        await self.published()
        return await self.life(episode_id)

    async def published(self) -> None:
        """Wait until the world was told of all that the journal and the dead letters hold now."""
        heads = {
            self.ports.stack.part(stream, partition): kept.past(0)[-1].seq
            for stream, partition in followed(self.ports.stack)
            if (kept := self._stream(stream)).past(0)
        }

        async def is_published() -> bool:
            return all([(await published(self.ports, p)).seq >= heads[p] for p in heads])

        await self.until(is_published)

    async def reached(self, key: str, status: str) -> Output:
        async def has_reached() -> bool:
            return (await self.output(key)).status == status

        await self.until(has_reached)
        return await self.output(key)

    async def quiet(self) -> None:
        """Wait until every lease has lapsed or was given up, and nobody is called any more."""
        await self.clock.sleep(45.0)

    def events(self, stream: Stream) -> list[LogEvent]:
        """Return all that one of the streams of aggregates holds."""
        records = [parse_commit(message) for message in self._stream(stream).past(0)]
        return [each for record in records for each in record.commit.events]

    @property
    def letters(self) -> list[DeadLettered]:
        return [each for each in self.events(Stream.DEAD) if isinstance(each, DeadLettered)]

    @property
    def findings(self) -> list[FindingEvent]:
        return [each for each in self.events(Stream.STATE) if isinstance(each, FindingEvent)]

    @property
    def told(self) -> list[tuple[str, dict]]:
        """Return the public events about outputs: name and payload."""
        events = self._public_events()
        return [(one.name, one.payload) for one in events if one.name.startswith("output.")]

    @property
    def told_ids(self) -> set[str]:
        """Return the ids of all events but those of reactors, which are never the same."""
        events = self._public_events()
        return {one.id for one in events if not one.name.startswith("reactor.")}

    @property
    def told_of(self) -> dict[str, list[str]]:
        """Return the ids of what the world was told of each aggregate, in the order they came."""
        ids: dict[str, list[str]] = {}
        for one in self._public_events():
            if "journal_seq" in one.payload:
                kept = self._stream(STREAMS.get(one.name.partition(".")[0], Stream.JOURNAL))
                subject = kept.at(one.payload["journal_seq"]).subject
                ids.setdefault(subject, []).append(one.id)
        # One that was published again after its time in the stream's memory is the same event.
        return {subject: list(dict.fromkeys(each)) for subject, each in ids.items()}

    def _public_events(self) -> list[DomainEvent]:
        kept = self._stream(Stream.EVENTS).past(0)
        return [self.ports.domain_events._parse(message) for message in kept]

    def _stream(self, stream: Stream) -> MemoryStream:
        return self.ports.log._streams[self.ports.stack.stream(stream)]


def play(
    story: Callable[[Scene], Awaitable[T]],
    app: App,
    *,
    weather: Doom | None = None,
    skew_s: float = 0.0,
) -> tuple[T, Scene]:
    """Play `story` with one node, and return what it returns.

    `weather` says when the node dies, `skew_s` how far its clock is ahead of the server's.
    """
    scene: list[Scene] = []

    async def played() -> T:
        scene.append(Scene(app, weather or Doom(), skew_s=skew_s))
        (actor,) = app.actors.values()
        # An actor that nobody ever ran hears nothing.
        await (await scene[0].ports.domain_events.open(actor.id, actor.event_names())).close()
        async with scene[0].node():
            return await story(scene[0])

    return simulate(played()), scene[0]
