"""Pulls a shared queue: open → wait for room → receive → handle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from engine import telemetry
from engine.runtime.permits import Permit
from engine.runtime.slots import Slots
from engine.runtime.tasks import wait_first
from engine.validation import backoff_s
from streams.clock import Clock
from streams.ports.delivery import Delivery, OrderedSource, QueuePosition, Source

T = TypeVar("T")

WAIT_S: Final = 5.0
"""Longest silent wait for messages; only how often an idle consumer wakes. Half of `ACK_WAIT_S`:
the acknowledgement is due that long after the request, so at least the other half is left."""

AGAIN_S: Final = 1.0
"""Longest silence while deliveries come again that are all due, in seconds: the server sends one
right after the other."""

REDELIVERED_MAX: Final = 1_000
"""Deliveries that come again and are requested at a time."""

Handle: TypeAlias = Callable[[Delivery[T], float], Awaitable[None]]
"""Answers a delivery, or starts a task that does. It also gets when the delivery was requested, in
seconds on the monotonic clock."""

HandleBatch: TypeAlias = Callable[[Sequence[Delivery[T]]], Awaitable[None]]
"""Answers all deliveries of one `receive`."""

HandleInOrder: TypeAlias = Callable[[Sequence[Delivery[T]], float], Awaitable[None]]
"""Takes all deliveries of one `receive`, and when they were requested, as `Handle` does."""


@dataclass(frozen=True)
class Service:
    """Takes work, mostly from a queue, whenever its permit is given."""

    run: Callable[[], Awaitable[None]]
    """Takes work until the permit is withdrawn. What was taken goes on."""
    permit: Permit
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once whatever is published is taken, here or elsewhere."""

    async def serve(self) -> None:
        """Run whenever the permit is given, until it never is again."""
        while await self.permit.wait_given():
            await self.run()

    async def wait_open(self) -> None:
        """Wait until it is open, or may not be."""
        await wait_first(self.is_open.wait(), self.permit.withdrawn.wait())


@dataclass(frozen=True)
class RetryPolicy:
    """When a message comes again that could not be handled, and when it is given up."""

    first_s: float
    """First wait; doubles each time."""
    most_s: float
    """Longest wait."""
    deliveries_min: int = 0
    """Deliveries before it may be given up."""
    age_s_min: float = 0.0
    """Age at which it may be given up."""

    async def hand_back(self, delivery: Delivery[object]) -> None:
        """Hand a message back, to come again on any node after a growing delay."""
        delay_s = backoff_s(delivery.deliveries, first_s=self.first_s, most_s=self.most_s)
        await delivery.nak(delay_s=delay_s)

    def is_over(self, delivery: Delivery[object], *, now: datetime) -> bool:
        """Return whether a message is to be given up: it takes many deliveries and age."""
        # Many may have ended within seconds for want of room; an old one may have waited for a
        # node.
        age_s = (now - delivery.at).total_seconds()
        # guard: slotless-deliveries-prove-nothing
        return delivery.deliveries >= self.deliveries_min and age_s >= self.age_s_min


async def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Queue(Generic[T]):
    """A shared queue, as one service pulls it."""

    open: Callable[[], Awaitable[Source[T]]]
    labels: Mapping[str, str]
    """Of the backlog metric."""
    opened: Callable[[], Awaitable[None]] = _nothing
    """Called each time that the queue has been opened, before anything is received."""
    pauses: bool = True
    """Whether what arrives while there is no room is handed back at once. Otherwise it waits for
    room, for at most `WAIT_S`."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)


async def consume(
    queue: Queue[T], handle: Handle[T], *, room: Slots, until: asyncio.Event, clock: Clock
) -> None:
    """Pass deliveries to `handle` one by one until `until` is set; then hand back the rest.

    `handle` takes a slot of `room`, and gives it back once it has answered.
    """
    async with aclosing(_pull(queue, room, until, clock)) as batches:
        async for asked_s, deliveries in batches:
            for delivery in deliveries:
                if until.is_set():  # guard: stopping-node-begins-nothing
                    await delivery.nak()
                else:
                    await handle(delivery, asked_s)


async def consume_batches(
    queue: Queue[T], handle: HandleBatch[T], *, room: Slots, until: asyncio.Event, clock: Clock
) -> None:
    """Do as `consume`, with all deliveries of a pull together."""
    async with aclosing(_pull(queue, room, until, clock)) as batches:
        async for _, deliveries in batches:
            await handle(deliveries)


@dataclass
class DeliveryCount:
    """Counts the deliveries of one queue, of which this node is to get every one."""

    _last: int | None = None

    def check(self, deliveries: Sequence[Delivery[Any]]) -> bool:
        """Return whether none is missing before or among the next `deliveries`."""
        for each in deliveries:
            if self._last is not None and each.nth != self._last + 1:
                return False
            self._last = each.nth
        return True

    def begin_anew(self) -> None:
        """Expect whatever comes next."""
        self._last = None


@dataclass
class Redeliveries(Generic[T]):
    """What a queue had delivered to others before one node pulled it, and comes again to that one.

    It comes before anything new, but in no order: what was handed back comes again before what was
    on its way to a node that is not there any more.
    """

    position: QueuePosition
    """How far the queue was then."""
    _found: dict[int, Delivery[T]] = field(default_factory=dict)
    """By sequence; the newest delivery of each."""

    def take(self, deliveries: Sequence[Delivery[T]]) -> None:
        """Take what has come."""
        self._found.update((each.seq, each) for each in deliveries)

    @property
    def missing(self) -> int:
        """How many others still have, as far as one can see."""
        again = sum(seq <= self.position.delivered_seq for seq in self._found)
        return self.position.unacknowledged - again

    @property
    def is_overtaken(self) -> bool:
        """Whether something new has come."""
        return any(seq > self.position.delivered_seq for seq in self._found)

    def in_order(self) -> list[Delivery[T]]:
        """Return all that has come, in the order of the stream."""
        return [self._found[seq] for seq in sorted(self._found)]  # guard: others-returns-sorted


@dataclass(frozen=True, kw_only=True)
class InOrder(Generic[T]):
    """Pulls a queue that nobody else pulls, in the order of its stream."""

    source: OrderedSource[T]
    room: Callable[[DeliveryCount], Awaitable[int]]
    """Waits for room, and returns how much there is."""
    check: Callable[[], None]
    """Raises if somebody else may pull the queue by now."""
    clock: Clock
    waits_for_all: bool = True
    """Whether to pass on nothing before all has come again that others had."""

    async def consume(self, handle: HandleInOrder[T], *, labels: Mapping[str, str]) -> bool:
        """Pass the deliveries to `handle` until one is missing; return if only that others had.

        It has gone to another node, or was lost, and is older than what was received since.
        """
        await self.room(DeliveryCount())
        position, asked_s = await self.source.position(), self.clock.monotonic_s()
        count = DeliveryCount(position.delivered)  # guard: deliveries-counted-from-queue
        again = await self._redelivered(position, count)
        if again is None:
            return True
        while again:
            most = await self.room(count)
            await handle(again[:most], asked_s)
            again = again[most:]
        while True:
            most, asked_s = await self.room(count), self.clock.monotonic_s()
            deliveries = await self._receive(most, WAIT_S, count)
            if deliveries is None:
                return False
            await handle(deliveries, asked_s)
            telemetry.backlog.set(self.source.pending, labels)

    async def _redelivered(
        self, position: QueuePosition, count: DeliveryCount
    ) -> list[Delivery[T]] | None:
        """Return what others had, with what has come after it; None: some of it is missing."""
        again = Redeliveries[T](position)
        while again.missing > 0:
            room = min(again.missing, REDELIVERED_MAX)
            deliveries = await self._receive(room, AGAIN_S, count)
            if deliveries is None:
                return None
            again.take(deliveries)
            if again.missing > 0 and (again.is_overtaken or not deliveries):
                # The server has no more of them now: others still have the rest.
                # guard: others-before-newer
                return None if self.waits_for_all else again.in_order()
        return again.in_order()

    async def _receive(
        self, room: int, wait_s: float, count: DeliveryCount
    ) -> Sequence[Delivery[T]] | None:
        """Return what comes; None: a delivery is missing before or among it."""
        deliveries = await self.source.receive(room=room, wait_s=wait_s, check=self.check)
        return deliveries if count.check(deliveries) else None  # guard: missing-delivery-ends-term


def consumer_service(
    queue: Queue[T], handle: Handle[T], *, room: Slots, permit: Permit, clock: Clock
) -> Service:
    """Return the service that consumes `queue` whenever `permit` is given."""

    def run() -> Awaitable[None]:
        return consume(queue, handle, room=room, until=permit.withdrawn, clock=clock)

    return Service(run, permit, queue.is_open)


async def _pull(
    queue: Queue[T], room: Slots, until: asyncio.Event, clock: Clock
) -> AsyncGenerator[tuple[float, Sequence[Delivery[T]]], None]:
    """Yield the time of each request, and the deliveries that there was room for."""
    source = await queue.open()
    closing = asyncio.create_task(_close_when(until, source))
    try:
        await queue.opened()
        queue.is_open.set()
        while not until.is_set():
            if not room.free:
                if queue.pauses:  # guard: full-node-asks-nothing
                    await source.pause()
                await wait_first(room.wait_free(), until.wait())  # guard: replaced-waiter-leaves
                continue
            asked_s = clock.monotonic_s()
            yield asked_s, await source.receive(room=room.free, wait_s=WAIT_S)
            telemetry.backlog.set(source.pending, queue.labels)
    finally:
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await source.close()


async def _close_when(until: asyncio.Event, source: Source[Any]) -> None:
    await until.wait()
    await source.close()
