"""One world: three nodes, a publisher and a seed. What happened in it is data."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from unittest.mock import patch

import msgspec
import structlog

from engine.node.node import Node
from engine.retention.step import RetentionStep
from engine.retention.worker import STEPS
from engine.waits.signal import RESOLVED
from engine.waits.signals import QUEUE
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.json import JsonObject
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.memory import memory_ports
from streams.ports.log import START, Recorded
from streams.ports.timers import Due
from streams.subjects import Stack
from streams.wire.messages import CLOUD_EVENT_ID_HEADER, MESSAGE_ID_HEADER, StreamMessage
from tests.simulation import defining, rest
from tests.simulation.actors import simulated_app
from tests.simulation.answers import Answers
from tests.simulation.errands import Errands, Fired, Pause, Started
from tests.simulation.faults import Fault, Weather
from tests.simulation.life import Life
from tests.simulation.outside import Ledger, Outside
from tests.simulation.rest import Asked
from tests.simulation.rows import Rows, keep_up
from tests.simulation.themes import TAKING_TURNS, Programme, Theme, programme_of
from tests.simulation.time import SimClock, simulate
from tests.simulation.wire import Arming, Kept, Servers, Wire, wired
from vigil import App
from vigil.testing import idle
from vigil.testing.idle import done

NAME: Final = "sim"
PARTITIONS: Final = (1, 1, 3)
"""How many streams the journal and the work of a world are spread over, in turns by the seed."""

NODES: Final = ("n1", "n2", "n3")
LEASE_TTL_S: Final = 10.0

LAPSE_LATE_S: Final = 1.0
"""After the end of a lease, until the server finds it, in every other world: nodes end it first."""

STORM_S: Final = 60.0
"""How long things go wrong."""

CALM_S_MAX: Final = 400.0
"""How long everything may take to end after that: a freeze of 25 s, a lease, two waits for an
answer of 30 s, and the same for the episodes that these wake."""

LOOK_S: Final = 2.0
QUIET_LOOKS: Final = 2
"""Looks in a row that find nothing to do. A lease that has just lapsed is work on its way."""

DOWN_S_MAX: Final = 6.0
"""Longest time until a dead process is replaced."""

SKEW_S_MAX: Final = 2.0
"""How far a node's wall clock may be off."""

EVENTS_MIN: Final = 4
EVENTS_MAX: Final = 9
EVENTS_THEMED_MAX: Final = 4
"""With a theme, which brings events of its own."""

KINDS: Final = (
    "settle", "settle", "settle", "five", "strict", "act", "act", "mail", "mail", "flaky",
    "broken", "circling", "turns", "tokens", "wall", "anew", "orphan", "frail",
)  # fmt: skip
KEYS: Final = ("k1", "k2")
VERBS: Final = ("raise", "raise", "update", "clear")

_life: ContextVar[Life | None] = ContextVar("life", default=None)
"""The process whose code runs."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What happened in a world, and what is left of it."""

    seed: int
    stack: Stack
    journal: Sequence[Recorded]
    """In the order in which it was stored, whatever the partitions."""
    dead: Sequence[Recorded]
    events: Sequence[StreamMessage]
    published: Sequence[int]
    """Sequences of the events whose publishing was acknowledged."""
    ledger: Ledger
    rows: Rows
    held: Sequence[str]
    """Claims that are held at the end."""
    unanswered: int
    """Deliveries that wait for someone at the end."""
    met: Mapping[Fault, int]
    shared: int
    """Commits that were stored together with others' in one batch."""
    zombie_writes: int
    surprises: Sequence[str]
    """What nodes logged as errors: nothing of what happens here should surprise them."""
    trace: Sequence[str]
    took_s: float
    programme: Programme
    stored_at_s: Mapping[tuple[str, int], float]
    """When each commit was stored, by its subject and sequence."""
    fed: Sequence[StreamMessage]
    """What the stream that is not ours holds."""
    kept: Sequence[Kept]
    """What was put into buckets, in order."""
    armed: Sequence[Arming]
    """Timers that were armed, in order."""
    due: Sequence[Due]
    """Timers that fired, or were sent."""
    pending: Sequence[str]
    """Timers that have not fired at the end, but for those of schedules."""
    asked: Sequence[Asked]
    """Commands that were sent, in order in each partition."""
    fired: Sequence[Fired]
    started: Sequence[Started]
    pauses: Sequence[Pause]


@dataclass
class World:
    """Run it once."""

    seed: int
    weather: Weather = field(init=False)
    servers: Servers = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    rows: Rows = field(default_factory=Rows)
    published: list[int] = field(default_factory=list)
    programme: Programme = field(init=False)
    errands: Errands = field(init=False)
    answers: Answers = field(init=False)
    _declared: App = field(init=False)
    """What every process has in code."""
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.programme = self._programme()
        self.weather = Weather(self.seed, is_fine=self.programme.is_fine)
        stack = Stack(NAME, PARTITIONS[self.seed % len(PARTITIONS)])
        ports = memory_ports(
            stack=stack,
            clock=SimClock(),
            lease_ttl_s=LEASE_TTL_S,
            lapse_late_s=0.0 if self.seed % 2 else LAPSE_LATE_S,
        )
        self.servers = Servers(ports, self.weather)
        self._workload = Random(f"workload {self.seed}")
        self._declared = self._app(Life("setup"))
        self.errands = Errands(
            self.seed,
            self.programme,
            self.servers,
            self._publish,
            nodes=NODES,
            actors=[*self._declared.actors, *self._defined],
        )
        self.answers = Answers(self.seed, self.programme, self.servers)

    async def run(self) -> History:
        """Let it happen, and return what did."""
        with told() as surprises, chance_of(self.seed):
            self._open_queues()
            self.errands.prepare()
            slots = [asyncio.create_task(self._slot(name)) for name in NODES]
            answering = asyncio.create_task(self.answers.run())
            doings = self._publish_all(), self.errands.run(), asyncio.sleep(STORM_S)
            await asyncio.gather(*doings)
            self.weather.clear_up()
            await self._wait_settled()
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering
        return self._history(surprises)

    # Nodes.

    async def _slot(self, name: str) -> None:
        """Keep one node up: whenever its process ends, start another."""
        while True:
            self._numbers += 1
            skew_s = self.weather.between(-SKEW_S_MAX, SKEW_S_MAX)
            life = Life(name, number=self._numbers, skew_s=skew_s)
            self.servers.note(name, "start", life.number)
            await self._live(life)
            self.servers.note(name, "end", life.number)
            await asyncio.sleep(self.weather.between(0.1, DOWN_S_MAX))

    async def _live(self, life: Life) -> None:
        ports = wired(life, self.servers)
        _life.set(life)
        node = Node(
            self._app(life), ports, name=life.name, clock=life.clock, lets_go=self._lets_go(life)
        )
        running = asyncio.create_task(node.run())
        projecting = [
            asyncio.create_task(
                keep_up(self.rows, ports, life, self.weather, stream, partition=each)
            )
            for stream in AGGREGATE_STREAMS
            for each in ports.stack.partitions_of(stream)
        ]
        stopping = asyncio.create_task(self._stop(node))
        life.on_death = running.cancel
        try:
            await asyncio.wait({running})
        finally:
            life.die()
            tasks = (running, *projecting, stopping)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _app(self, life: Life) -> App:
        return simulated_app(Outside(Wire(life, self.servers), self.ledger), self.programme)

    def _programme(self) -> Programme:
        return programme_of(self.seed)

    def _lets_go(self, life: Life) -> Sequence[RetentionStep]:
        return STEPS

    async def _stop(self, node: Node) -> None:
        if self.weather.draw(Fault.STOPPED):
            await asyncio.sleep(self.weather.between(1.0, STORM_S / 2))
            self.servers.note(node.name, "stop", "")
            node.stop()

    # The world outside.

    def _open_queues(self) -> None:
        """An actor that nobody ever ran hears nothing; these have been run before."""
        for actor in self._declared.actors.values():
            done(self.servers.ports.domain_events.open(actor.id, actor.event_names()))
            done(self.servers.ports.commands.open(actor.id))
            done(self.servers.ports.commands.open_attending(actor.id))
        for workflow in self._declared.workflows:
            done(self.servers.ports.commands.open_workflow(workflow))
        for actor_id in self._defined:
            done(self.servers.ports.domain_events.open(actor_id, [defining.EVENT]))
            done(self.servers.ports.commands.open(actor_id))
            done(self.servers.ports.commands.open_attending(actor_id))
        done(self.servers.ports.domain_events.open(QUEUE, [RESOLVED]))

    @property
    def _defined(self) -> Sequence[str]:
        """The actors that no app declares in code."""
        return [defining.ACTOR] if Theme.DEFINITIONS in self.programme.themes else []

    async def _publish_all(self) -> None:
        rng = self._workload
        wire = Wire(Life("publisher", is_mortal=False), self.servers)
        most = EVENTS_THEMED_MAX if self.programme.themes else EVENTS_MAX
        events = [self._event(n) for n in range(rng.randint(EVENTS_MIN, most))]
        again = [event for event in events if rng.random() < 0.3]
        due = sorted(
            (rng.uniform(0.0, STORM_S * 0.7), number) for number in range(len(events + again))
        )
        waits = [at - before for (at, _), (before, _) in zip(due, [(0.0, 0), *due], strict=False)]
        for wait_s, (_, number) in zip(waits, due, strict=True):
            await asyncio.sleep(wait_s)
            await self._publish(wire, *(events + again)[number])

    def _event(self, number: int) -> tuple[str, bytes, dict[str, str]]:
        rng = self._workload
        kind = rng.choice(KINDS)
        intents = [(rng.choice(VERBS), rng.choice(KEYS)) for _ in range(rng.randint(1, 3))]
        payload: JsonObject = {"key": rng.choice(KEYS), "intents": intents}
        data = b"{not json" if rng.random() < 0.08 else msgspec.json.encode(payload)
        header = CLOUD_EVENT_ID_HEADER if rng.random() < 0.4 else MESSAGE_ID_HEADER
        return f"sim.{kind}", data, {header: f"e{number}"}

    async def _publish(self, wire: Wire, name: str, data: bytes, headers: dict[str, str]) -> None:
        world = self.servers.ports.domain_events
        what = f"event {name} {headers}"
        with _unless_away():
            seq = await wire.surely(what, lambda: world.publish_raw(name, data, headers))
            self.published.append(seq)

    # The end.

    async def _wait_settled(self) -> None:
        """Wait until nothing is left to do, but not for ever."""
        quiet_looks = 0
        for _ in range(int(CALM_S_MAX / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            quiet_looks = quiet_looks + 1 if self._is_quiet() else 0
            if quiet_looks == QUIET_LOOKS:
                return

    def _is_quiet(self) -> bool:
        heads = self.servers.heads()
        caught_up = all(self.rows.checkpoints.get(each, START) == heads[each] for each in heads)
        return caught_up and not rest.is_left(self.servers) and not self.answers.is_busy

    @property
    def _has_lanes(self) -> bool:
        return not TAKING_TURNS.isdisjoint(self.programme.themes)

    def _history(self, surprises: Sequence[str]) -> History:
        ports = self.servers.ports
        return History(
            seed=self.seed,
            stack=ports.stack,
            journal=rest.stored(self.servers, *AGGREGATE_STREAMS),
            dead=rest.stored(self.servers, Stream.DEAD),
            events=ports.log._streams[ports.stack.stream(Stream.EVENTS)].past(0),
            published=self.published,
            ledger=self.ledger,
            rows=self.rows,
            held=idle.held(ports),
            unanswered=idle.unanswered(ports),
            met=Counter(self.weather.met),
            shared=self.servers.shared,
            zombie_writes=self.servers.zombie_writes,
            surprises=surprises,
            trace=[
                f"{at:8.3f} {who:9} {what}: {came}" for at, who, what, came in self.servers.trace
            ],
            took_s=asyncio.get_running_loop().time(),
            programme=self.programme,
            stored_at_s=self.servers.stored_at_s,
            fed=rest.fed(self.servers),
            kept=self.servers.kept,
            armed=self.servers.armed,
            due=rest.due(self.servers),
            pending=idle.pending(ports),
            asked=rest.asked(self.servers),
            fired=self.errands.fired,
            started=self.errands.started,
            pauses=self.errands.pauses,
        )


def happened(seed: int) -> History:
    """Return what happens in the world of `seed`: always the same."""
    return simulate(World(seed).run())


@contextmanager
def _unless_away() -> Iterator[None]:
    """Let a publisher give up: what was not acknowledged is not promised."""
    try:
        yield
    except Unavailable:
        return


@contextmanager
def chance_of(seed: int) -> Iterator[None]:
    """Draw from `seed` what nobody could guess, too: ids of requests end up on the log.

    So does the time of whoever changes a definition, who has no clock of their own.
    """
    rng = Random(f"chance {seed}")
    now = patch.object(SystemClock, "now", lambda _: SimClock().now())
    with patch.object(os, "urandom", rng.randbytes), now:
        yield


@contextmanager
def told() -> Iterator[list[str]]:
    """Collect what nodes log as errors, and what asyncio complains about.

    What a dead process still says on its way out is nobody's news: a real one says nothing.
    """
    surprises: list[str] = []

    def keep(_: object, __: str, entry: Any) -> Any:
        life = _life.get()
        if life is None or not life.dead:
            shown = traceback.format_exc() if entry.get("exc_info") else ""
            surprises.append(f"{entry['event']} {shown}")
        raise structlog.DropEvent

    def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        surprises.append(f"{context['message']} {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(complain)
    before = structlog.get_config()
    errors_only = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(processors=[keep], wrapper_class=errors_only)
    try:
        yield surprises
    finally:
        structlog.configure(**before)
