"""The gates: take an actor's events from its queues, evaluate them, and admit episodes.

All nodes share one durable queue per stream, with what any version of the actor watches. An event
that this version does not watch is left to other nodes, and refused when none has taken it for
long, or when `WatchList` finds that the queue no longer includes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import structlog

from engine.episodes.breaker_store import EpisodeContext
from engine.runtime.consumer import Queue, Service, consumer_service
from engine.runtime.context import ActorContext
from engine.runtime.tasks import wait_first
from engine.triggers.admit import STRANGE_DELIVERIES_MAX, Admission, leave
from streams.clock import Clock
from streams.errors import NoSuchStream, Unavailable
from streams.model.foreign_streams import ForeignStream
from streams.ports.delivery import Delivery, Source, Unreadable
from streams.ports.domain_events import DomainEvent, DomainEvents

STREAM_LOOK_S: Final = 5.0
"""Between two looks for a stream that is not there, in seconds."""

BEGINNING: Final = 0
"""Just before the first message of a stream."""


QUEUE_LOOK_S: Final = 5.0
"""Between two looks at the queue, in seconds. A node that removes an event from it sees within two
seconds whether some node needs it after all, and adds it again; so it counts as gone once a
second look finds the same."""

Incoming: TypeAlias = Delivery[DomainEvent | Unreadable]

OpenQueue: TypeAlias = Callable[[], Awaitable[Source[DomainEvent | Unreadable]]]


log = structlog.get_logger("vigil.triggers")


def missing(actor: str, stream: str) -> str:
    """Return what to log about a stream that does not exist."""
    return (
        f"stream {stream} does not exist; actor {actor} listens to it; "
        "create it or correct the name"
    )


def position_unseen(foreign: ForeignStream) -> int | None:
    """Return where to begin while there is no such stream; None: that is not known yet."""
    return BEGINNING if foreign.start in ("new", "all") else None


async def find_position(context: ActorContext, foreign: ForeignStream) -> int | None:
    """Return the sequence past which the actor reads a feed; None: there is no such stream."""
    try:
        return await context.ports.domain_events.feed_position(context.actor.id, foreign)
    except NoSuchStream:
        return None


async def wait_position(context: ActorContext, foreign: ForeignStream) -> int:
    """Return the sequence past which the actor reads a feed, once its stream exists."""
    position = await find_position(context, foreign)
    if position is not None:
        return position
    actor, stream = context.actor.id, foreign.stream
    log.warning(missing(actor, stream), actor=actor, stream=stream, looks_every_s=STREAM_LOOK_S)
    while position is None:
        await context.clock.sleep(STREAM_LOOK_S)
        position = await find_position(context, foreign)
    log.info("the stream is there now", actor=actor, stream=stream)
    unseen = position_unseen(foreign)
    return position if unseen is None else unseen


class WatchList:
    """The events that one actor's queue includes; looked up only when somebody asks."""

    def __init__(self, domain_events: DomainEvents, clock: Clock, actor: str) -> None:
        self._domain_events, self._clock, self._actor = domain_events, clock, actor
        self._asked: set[str] = set()
        """Names that were asked for since the last look."""
        self._absent: frozenset[str] = frozenset()
        """Those that the queue did not include at the last look."""
        self._gone: frozenset[str] = frozenset()
        """Those that it did not include at the last two looks."""
        self._looked_s = -QUEUE_LOOK_S

    async def is_gone(self, name: str) -> bool:
        """Return whether the queue has not included this name for two looks, as far as is known."""
        self._asked.add(name)
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= QUEUE_LOOK_S:
            self._looked_s = now_s
            await self._look()
        return name in self._gone

    async def _look(self) -> None:
        try:
            watched = await self._domain_events.watched(self._actor)
        except Unavailable:
            return
        absent = frozenset(self._asked - watched)
        self._gone, self._absent = absent & self._absent, absent
        self._asked.clear()


@dataclass
class Gate:
    """The gate of one actor, for one stream, on one node."""

    admission: Admission
    _strange: set[str] = field(default_factory=set)
    """Names that were logged; bounded, since the queue has only names that some version watches."""
    _watch_list: WatchList = field(init=False)

    def __post_init__(self) -> None:
        context = self.admission.context
        self._watch_list = WatchList(context.ports.domain_events, context.clock, context.actor.id)

    def service(self, queue: str, open_: OpenQueue) -> Service:
        """Return the service that evaluates events; `queue` is its label in metrics."""
        context = self.admission.context
        return consumer_service(
            Queue(open=open_, labels={"actor": context.actor.id, "queue": queue}, pauses=False),
            self._admit,
            room=self.admission.room,
            permit=context.permits.wakes,
            clock=context.clock,
        )

    async def _admit(self, delivery: Incoming, asked_s: float) -> None:
        content = delivery.content
        if isinstance(content, Unreadable):
            return await self.admission.let_in(delivery, [content], since_s=asked_s)
        if self._is_strange(content) and not await self._is_hopeless(delivery, content):
            return await leave(delivery)
        is_repeat = delivery.deliveries > 1
        parts = await self.admission.evaluator.rule(content, is_repeat=is_repeat)
        return await self.admission.let_in(delivery, parts, since_s=asked_s)

    def _is_strange(self, event: DomainEvent) -> bool:
        """Return whether an event is for a node with another version of the actor, and log that."""
        actor = self.admission.context.actor
        if event.stream or event.name in actor.event_names():
            return False
        if event.name not in self._strange:
            self._strange.add(event.name)
            log.warning(
                "event handed back: the actor here does not watch it; another node's may",
                actor=actor.id,
                event_name=event.name,
                event_id=event.id,
                further="counted as not_watched when it is refused, not logged",
            )
        return True

    async def _is_hopeless(self, delivery: Incoming, event: DomainEvent) -> bool:
        is_old = delivery.deliveries >= STRANGE_DELIVERIES_MAX
        return is_old or await self._watch_list.is_gone(event.name)


class OpenForeignStream(Protocol):
    """Opens an actor's queue of a stream of others, from `after` on if that is known."""

    async def __call__(
        self, context: EpisodeContext, foreign: ForeignStream, *, after: int | None
    ) -> Source[DomainEvent | Unreadable]:
        """Return the queue."""


class ForeignStreamGate:
    """The gate of one actor, for one stream of others, on one node."""

    def __init__(
        self, admission: Admission, foreign: ForeignStream, open_feed: OpenForeignStream
    ) -> None:
        self._context, self._foreign, self._open_feed = admission.context, foreign, open_feed
        self._gate = Gate(admission).service(foreign.stream, self._open)
        self._after: int | None = None
        """Where to begin, if the stream was waited for."""

    def service(self) -> Service:
        """Return the service that evaluates the stream's events, once the stream exists."""
        # It is also open when nothing can come because there is no such stream.
        return Service(self._run, self._gate.permit, self._gate.is_open)

    async def _run(self) -> None:
        withdrawn = self._gate.permit.withdrawn
        if await find_position(self._context, self._foreign) is None:
            self._gate.is_open.set()
            await wait_first(self._wait_stream(), withdrawn.wait())
        if not withdrawn.is_set():
            await self._gate.run()

    async def _wait_stream(self) -> None:
        self._after = await wait_position(self._context, self._foreign)

    async def _open(self) -> Source[DomainEvent | Unreadable]:
        return await self._open_feed(self._context, self._foreign, after=self._after)
