"""What the world and its people do in one world for its themes, besides the ordinary events.

Events of the themes are all readable. People who set modes and pauses reach the servers at once:
what matters is when the nodes hear of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from engine.episodes.fire import fired_episode_id
from engine.orders.order import key_of
from engine.orders.store import give_order
from engine.workflows.requests import started_id
from streams.errors import Unavailable
from streams.json import JsonObject
from streams.model.events import ActorPaused, ActorResumed, NodeModeSet, NodeModeUnset, OrderEvent
from streams.model.modes import NodeMode
from streams.model.triggers import Mode
from streams.ports.all import Ports
from streams.wire.messages import CLOUD_EVENT_ID_HEADER, MESSAGE_ID_HEADER
from tests.simulation import defining
from tests.simulation.life import Life
from tests.simulation.themes import TAKING_TURNS, Programme, Theme
from tests.simulation.time import SimClock
from tests.simulation.wakeful import COOLDOWN_S, ORDERS
from tests.simulation.wire import Servers, Wire, wired
from vigil import overrides
from vigil.ports import fire, start_workflow
from vigil.testing.idle import done

BUSY_S: Final = 45.0
"""Until when errands begin, in simulated seconds."""

LATER_S_MAX: Final = 30.0
"""How much later than asked for a fire may be due."""

HISTORY: Final = 3
"""Messages of the foreign stream that are there before any node is."""

PAUSE_LATE: Final = (58.0, 75.0)
"""When a long pause ends: after more than a minute, so that ticks count as missed."""

EVENTS: Final[Mapping[Theme, tuple[Sequence[str], int]]] = {
    Theme.COOLDOWN: (("sim.cool",), 8),
    Theme.CALM: (("sim.calm",), 10),
    Theme.BREAKER: (("sim.trip",), 11),
    Theme.HASTE: (("sim.hurry",), 12),
    Theme.LANES: (("sim.turn", "sim.turn", "sim.urgent"), 10),
    Theme.APPROVALS: (("sim.ask", "sim.ask", "sim.ask_turn"), 7),
    Theme.WAITS: (("sim.wait", "sim.wait", "sim.wait_turn", "sim.row"), 8),
    Theme.OUTPUTS: (("sim.send", "sim.gated", "sim.inline", "sim.send_turn"), 7),
    Theme.WORKFLOWS: (("sim.flow", "sim.flow", "sim.fan", "sim.saga", "sim.outer"), 4),
    Theme.DEFINITIONS: ((defining.EVENT,), 12),
    Theme.FUNCTIONS: (
        (
            "sim.branching",
            "sim.letters",
            "sim.pages",
            "sim.persists",
            "sim.divides",
            "sim.divides",
            "sim.renamed",
            "sim.lacks",
        ),
        7,
    ),
}
"""Theme → its events, and how many of them there are at most."""

KEYS: Final = ("k1", "k2", "k3")

Publish = Callable[[Wire, str, bytes, dict[str, str]], Awaitable[None]]


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that somebody asked for by hand."""

    episode_id: str
    expectation: str
    is_dry: bool
    is_sure: bool
    """Whether the request was acknowledged."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that somebody asked for by hand."""

    instance_id: str
    is_dry: bool
    is_sure: bool
    """Whether the request was acknowledged."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which an actor was to be woken by nobody."""

    actor: str
    since_s: float
    until_s: float


@dataclass
class Errands:
    """All that is done in one world, drawn from its seed."""

    seed: int
    programme: Programme
    servers: Servers
    publish: Publish
    nodes: Sequence[str]
    actors: Sequence[str]
    fired: list[Fired] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = Random(f"errands {self.seed}")
        self._wire = Wire(Life("people", is_mortal=False), self.servers)

    def prepare(self) -> None:
        """Have what is there before the first node."""
        if Theme.FEED in self.programme.themes and self._rng.random() < 0.8:
            self._make_stream()

    async def run(self) -> None:
        """Do everything, and take back what would last."""
        await asyncio.gather(*self._errands())

    def _errands(self) -> Iterator[Awaitable[None]]:
        themes = self.programme.in_order
        for theme in themes:
            if theme in EVENTS:
                yield self._publish_all(theme)
        if Theme.FEED in themes:
            yield self._fill_stream()
        if Theme.FIRES in themes:
            yield self._fire_all()
        if Theme.COOLDOWN in themes:
            yield self._fire_cool()
        if Theme.WORKFLOWS in themes:
            yield self._start_flow()
        if Theme.DEFINITIONS in themes:
            ports = wired(self._wire.life, self.servers)
            yield defining.define(ports, Random(f"definitions of {self.seed}"))
        if self.programme.has_orders:
            yield self._switch_nodes()
            yield self._pause_actor()

    # The world.

    async def _publish_all(self, theme: Theme) -> None:
        names, most = EVENTS[theme]
        count = self._rng.randint(most // 2, most)
        wanted = [(self._rng.choice(names), self._event(theme, n)) for n in range(count)]
        wanted += [each for each in wanted if self._rng.random() < 0.15]
        publish = partial(self.publish, self._wire)
        await self._over_time([partial(publish, name, *event) for name, event in wanted])

    def _event(self, theme: Theme, number: int) -> tuple[bytes, dict[str, str]]:
        # Stored twice, an event would be newer than itself, and come to nothing in a lane.
        is_cloudy = theme not in {Theme.CALM, *TAKING_TURNS} and self._rng.random() < 0.3
        header = CLOUD_EVENT_ID_HEADER if is_cloudy else MESSAGE_ID_HEADER
        payload = {"key": self._rng.choice(KEYS), "number": number}
        return msgspec.json.encode(payload), {header: f"{theme}{number}"}

    def _make_stream(self) -> None:
        stream = self.servers.ports.domain_events.add_stream(ORDERS)
        for number in range(HISTORY):
            stream.publish(f"orders.{number}", b'{"key": "k1"}', {})

    async def _fill_stream(self) -> None:
        world = self.servers.ports.domain_events
        await asyncio.sleep(self._rng.uniform(0.0, 10.0))
        if ORDERS not in world._foreign:
            self._make_stream()
        for number in range(self._rng.randint(2, 5)):
            await asyncio.sleep(self._rng.uniform(0.0, 8.0))
            headers = {MESSAGE_ID_HEADER: f"o{number}"} if self._rng.random() < 0.5 else {}
            world._foreign[ORDERS].publish(f"orders.new.{number}", b'{"key": "k2"}', headers)

    # People.

    async def _fire_all(self) -> None:
        count = self._rng.randint(3, 6)
        fires = [partial(self._fire_one, number) for number in range(count)]
        again = [fire_one for fire_one in fires if self._rng.random() < 0.4]
        await self._over_time([*fires, *again])

    async def _fire_one(self, number: int) -> None:
        is_dry = number % 2 == 1
        later_s = self._rng.uniform(1.0, LATER_S_MAX) if self._rng.random() < 0.4 else None
        name = "tried" if is_dry else "asked"
        await self._fire("hand", name, key=f"f{number}", is_dry=is_dry, later_s=later_s)

    async def _fire_cool(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, BUSY_S))
        await self._fire("rested", "cool", key="f", is_dry=False, later_s=None)
        await asyncio.sleep(self._rng.uniform(0.0, 2 * COOLDOWN_S))

    async def _fire(
        self, actor: str, name: str, *, key: str, is_dry: bool, later_s: float | None
    ) -> None:
        ports = wired(self._wire.life, self.servers)
        at = None if later_s is None else SimClock().now() + timedelta(seconds=later_s)
        is_sure = True
        try:
            await fire(
                ports,
                actor,
                name,
                {"key": "k1"},
                by="people",
                key=key,
                at=at,
                dry_run=is_dry,
                overrides=overrides(tools={"pay.out": {"value": 1}}) if is_dry else None,
            )
        except Unavailable:
            is_sure = False
        self._note_fired(actor, name, key=key, is_dry=is_dry, is_sure=is_sure)

    def _note_fired(self, actor: str, name: str, *, key: str, is_dry: bool, is_sure: bool) -> None:
        episode_id = fired_episode_id(
            stack=self.servers.ports.stack.name,
            actor=actor,
            expectation=name,
            key=key,
            mode=Mode.DRY_RUN if is_dry else Mode.LIVE,
        )
        self.fired.append(
            Fired(episode_id=episode_id, expectation=name, is_dry=is_dry, is_sure=is_sure)
        )

    async def _start_flow(self) -> None:
        """Begin equal instances by hand, and one only to try."""
        ports = wired(self._wire.life, self.servers)
        said: JsonObject = {"key": self._rng.choice(KEYS)}
        general, own = (overrides(tools={"pay.out": {"value": n}}) for n in (1, 5))
        tried = {"dry_run": True, "overrides": general, "step_overrides": {"end": own}}
        flows = (("fan", {}), ("saga", {}), ("fan", tried), ("fan", {}))
        for number, (flow, options) in enumerate(flows):
            await asyncio.sleep(self._rng.uniform(0.0, BUSY_S / 4))
            await self._start(ports, flow, said, key=f"s{number}", **options)

    async def _start(
        self, ports: Ports, name: str, said: JsonObject, *, key: str, **options: Any
    ) -> None:
        is_sure, is_dry = True, "dry_run" in options
        try:
            await start_workflow(ports, name, said, by="people", key=key, **options)
        except Unavailable:
            is_sure = False
        mode = Mode.DRY_RUN if is_dry else Mode.LIVE
        id_ = started_id(self.servers.ports.stack, name, key, mode=mode)
        self.started.append(Started(instance_id=id_, is_dry=is_dry, is_sure=is_sure))

    def _order(self, event: OrderEvent) -> None:
        """Give an order that reaches the servers at once."""
        ports = self.servers.ports
        done(give_order(ports, event, clock=SimClock()))
        newest = done(ports.log.last(ports.stack.order(key_of(event))))
        assert newest is not None, "what was ordered is on the log"
        at_s = asyncio.get_running_loop().time()
        self.servers.stored_at_s.setdefault((newest.subject, newest.seq), at_s)

    async def _switch_nodes(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            await asyncio.sleep(self._rng.uniform(0.0, 15.0))
            node, mode = self._rng.choice(self.nodes), self._rng.choice(list(NodeMode))
            self._order(NodeModeSet(node=node, mode=mode, by="people"))
            self.servers.note("people", f"mode of {node}", mode)
            await asyncio.sleep(self._rng.uniform(3.0, 15.0))
            self._order(NodeModeUnset(node=node, by="people"))
            self.servers.note("people", f"mode of {node}", "as it was")

    async def _pause_actor(self) -> None:
        loop = asyncio.get_running_loop()
        actor, since_s = self._rng.choice(self.actors), self._rng.uniform(0.0, 20.0)
        is_long = self._rng.random() < 0.4
        until_s = self._rng.uniform(*PAUSE_LATE) if is_long else since_s + 15.0
        await asyncio.sleep(since_s)
        self._order(ActorPaused(actor_id=actor, by="people"))
        self.servers.note("people", f"pause {actor}", "")
        await asyncio.sleep(until_s - loop.time())
        self._order(ActorResumed(actor_id=actor, by="people"))
        self.servers.note("people", f"resume {actor}", "")
        self.pauses.append(Pause(actor=actor, since_s=since_s, until_s=until_s))

    async def _over_time(self, errands: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Do each of `errands` at any time, one after the other, some of them at once."""
        at_s = sorted(self._rng.uniform(0.0, BUSY_S) for _ in errands)
        for errand, due_s in zip(errands, at_s, strict=True):
            is_burst = self._rng.random() < 0.4
            left_s = due_s - asyncio.get_running_loop().time()
            await asyncio.sleep(0.0 if is_burst else max(0.0, left_s))
            await errand()
