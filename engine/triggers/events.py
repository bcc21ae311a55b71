"""The gates: take an actor's events from its queues, evaluate them, and admit episodes.

All nodes share one durable queue per stream, with what any version of the actor watches. An event
that this version does not watch is left to other nodes, and refused when none has taken it for
long, or when `WatchList` finds that the queue no longer includes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog

from engine.runtime.consumer import Queue, Service, consumer_service
from engine.runtime.context import ActorContext
from engine.runtime.tasks import wait_first
from engine.triggers.admit import STRANGE_DELIVERIES_MAX, Admission, leave
from streams.clock import Clock
from streams.errors import NoSuchStream, Unavailable
from streams.model.foreign_streams import ForeignStream
from streams.ports.delivery import ACK_WAIT_S, Delivery, OrderedSource, Unreadable
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

OpenQueue: TypeAlias = Callable[[], Awaitable[OrderedSource[DomainEvent | Unreadable]]]


log = structlog.get_logger("vigil.triggers")


def missing(actor: str, stream: str) -> str:
    """Return what to log about a stream that does not exist."""
    return (
        f"stream {stream} does not exist; actor {actor} listens to it; "
        "create it or correct the name"
    )


async def open_events(context: ActorContext) -> OrderedSource[DomainEvent | Unreadable]:
    """Return the actor's queue of the stack's own events."""
    domain_events, actor = context.ports.domain_events, context.actor
    return await domain_events.open(actor.id, actor.event_names())


@dataclass
class ForeignQueue:
    """An actor's queue of one stream of others, which may not exist yet."""

    context: ActorContext
    foreign: ForeignStream
    after: int | None = None
    """Where it begins the first time; None: where the actor says."""

    async def open(self) -> OrderedSource[DomainEvent | Unreadable]:
        """Return the queue, or raise `NoSuchStream`."""
        domain_events, actor = self.context.ports.domain_events, self.context.actor.id
        return await domain_events.open_feed(actor, self.foreign, after=self.after)

    async def begin(self) -> bool:
        """Make the queue, which begins at new messages; return False if there is no stream."""
        try:
            await (await self.open()).close()
        except NoSuchStream:  # guard: missing-stream-lane-begins
            # All that it will have is new.
            # guard: found-stream-all-new
            self.after = BEGINNING if self.foreign.start in ("new", "all") else None
            return False
        return True

    async def wait_begun(self) -> None:
        """Return once the stream exists and the queue has begun."""
        if await self.begin():
            return
        actor, stream = self.context.actor.id, self.foreign.stream
        log.warning(missing(actor, stream), actor=actor, stream=stream, looks_every_s=STREAM_LOOK_S)
        while not await self.begin():
            await self.context.clock.sleep(STREAM_LOOK_S)
        log.info("the stream is there now", actor=actor, stream=stream)


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
        self._gone, self._absent = absent & self._absent, absent  # guard: gone-after-two-looks
        self._asked.clear()


@dataclass
class UnwatchedEvents:
    """The events in an actor's queue that its version on this node does not watch."""

    context: ActorContext
    _strange: set[str] = field(default_factory=set)
    """Names that were logged; bounded, since the queue has only names that some version watches."""
    _watch_list: WatchList = field(init=False)

    def __post_init__(self) -> None:
        context = self.context
        self._watched = context.actor.event_names()
        self._watch_list = WatchList(context.ports.domain_events, context.clock, context.actor.id)

    async def hand_back(self, delivery: Incoming) -> bool:
        """Leave an event to another version of the actor if it is for one; return whether it is."""
        content = delivery.content
        # guard: others-events-left-alone
        if isinstance(content, Unreadable) or not self._is_strange(content):
            return False
        if await self._is_hopeless(delivery, content):
            return False
        await leave(delivery)
        return True

    def _is_strange(self, event: DomainEvent) -> bool:
        """Return whether an event is for a node with another version of the actor, and log that."""
        if event.stream or event.name in self._watched:
            return False
        if event.name not in self._strange:
            self._strange.add(event.name)
            log.warning(
                "event handed back: the actor here does not watch it; another node's may",
                actor=self.context.actor.id,
                event_name=event.name,
                event_id=event.id,
                further="counted as not_watched when it is refused, not logged",
            )
        return True

    async def _is_hopeless(self, delivery: Incoming, event: DomainEvent) -> bool:
        # guard: unwatched-event-refused-finally
        is_old = delivery.deliveries >= STRANGE_DELIVERIES_MAX
        return is_old or await self._watch_list.is_gone(event.name)  # guard: narrowed-away-answered


@dataclass
class Gate:
    """The gate of one actor, for one stream, on one node."""

    admission: Admission

    def __post_init__(self) -> None:
        self._unwatched = UnwatchedEvents(self.admission.context)

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
        if await self._unwatched.hand_back(delivery):
            return None
        is_repeat, is_late = delivery.deliveries > 1, self._is_late(asked_s)
        evaluator = self.admission.evaluator
        parts = await evaluator.rule(content, is_repeat=is_repeat, is_late=is_late)
        return await self.admission.let_in(delivery, parts, since_s=asked_s)

    def _is_late(self, asked_s: float) -> bool:
        """Return whether others may have been delivered what was requested then."""
        return self.admission.context.clock.monotonic_s() - asked_s >= ACK_WAIT_S


class ForeignStreamGate:
    """The gate of one actor, for one stream of others, on one node."""

    def __init__(self, admission: Admission, foreign: ForeignStream) -> None:
        self._queue = ForeignQueue(admission.context, foreign)
        self._gate = Gate(admission).service(foreign.stream, self._queue.open)

    def service(self) -> Service:
        """Return the service that evaluates the stream's events whenever the stream exists."""
        # It is also open when nothing can come because there is no such stream.
        return Service(self._run, self._gate.permit, self._gate.is_open)

    async def _run(self) -> None:
        withdrawn = self._gate.permit.withdrawn
        while not withdrawn.is_set():
            if not await self._queue.begin():
                self._gate.is_open.set()
                await wait_first(self._queue.wait_begun(), withdrawn.wait())
            if not withdrawn.is_set():
                # guard: gate-reopens-remade-stream
                with suppress(NoSuchStream):  # It was deleted meanwhile.
                    await self._gate.run()
