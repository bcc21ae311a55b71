"""A durable consumer in memory: its unacknowledged deliveries, and redelivery.

It plays the server's part; a `MemorySource` is one node's handle on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from streams.errors import NoSuchStream
from streams.memory.stream import MemoryStream
from streams.ports.delivery import ACK_WAIT_S, QueuePosition
from streams.wire.messages import TRACE_HEADER, StreamMessage

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Unanswered:
    deliveries: int
    due_s: float
    """When the message comes again, on the monotonic clock."""
    to: object
    """Who has it."""


class Durable:
    """A position in a stream and the deliveries that nobody answered yet."""

    def __init__(self, stream: MemoryStream, *, after: int, matches: Callable[[str], bool]) -> None:
        self.stream = stream
        self.matches = matches
        """Whether messages on a subject are for this consumer."""
        self._position = after
        self._unanswered: dict[int, _Unanswered] = {}
        self._delivered = 0

    @property
    def pending(self) -> int:
        """How many messages were never delivered."""
        return sum(self.matches(each.subject) for each in self.stream.past(self._position))

    @property
    def backlog(self) -> int:
        """How many messages were never delivered, or are not answered for."""
        return self.pending + len(self._unanswered)

    def position(self) -> QueuePosition:
        """Return how far it is."""
        return QueuePosition(
            delivered=self._delivered,
            delivered_seq=self._position,
            acknowledged_seq=min(self._unanswered, default=self._position + 1) - 1,
            unacknowledged=len(self._unanswered),
        )

    def take(self, room: int, *, to: object) -> Sequence[tuple[StreamMessage, int, int]]:
        """Return up to `room` messages for `to`: what comes again, then new.

        Each with how often it was delivered, and how many deliveries there were of any.
        """
        messages = self._take_due(room)
        messages += self._take_new(room - len(messages))
        return [(message, *self._deliver(message.seq, to)) for message in messages]

    def next_due_s(self) -> float:
        """Return when the next unanswered message comes again, on the monotonic clock."""
        return min((each.due_s for each in self._unanswered.values()), default=math.inf)

    def is_waiting(self, seq: int) -> bool:
        """Return whether the message at `seq`, which must be ours, is unsettled."""
        return seq > self._position or seq in self._unanswered

    def settle(self, seq: int) -> None:
        """Never deliver the message at `seq` again."""
        self._unanswered.pop(seq, None)

    def hand_back(self, seq: int, *, delay_s: float) -> None:
        """Deliver the message at `seq` again after `delay_s`, unless it was settled."""
        given = self._unanswered.get(seq)
        if given is not None:
            due_s = self.stream.clock.monotonic_s() + delay_s
            self._unanswered[seq] = replace(given, due_s=due_s)
            self.stream.bell.ring()

    def hand_back_all(self, *, of: object) -> None:
        """Deliver again at once what `of` has."""
        for seq in sorted(seq for seq, given in self._unanswered.items() if given.to is of):
            self.hand_back(seq, delay_s=0.0)

    def deliver_again(self) -> None:
        """Deliver at once all that was ever delivered, as if no acknowledgement had come."""
        now_s = self.stream.clock.monotonic_s()
        for message in self.stream.past(0, most=self._position):
            if self.matches(message.subject) and message.seq not in self._unanswered:
                again = _Unanswered(deliveries=1, due_s=now_s, to=None)
                self._unanswered[message.seq] = again
        self.stream.bell.ring()

    def _take_due(self, room: int) -> list[StreamMessage]:
        now_s = self.stream.clock.monotonic_s()
        due = sorted((at.due_s, seq) for seq, at in self._unanswered.items() if at.due_s <= now_s)
        return [self.stream.at(seq) for _, seq in due[:room]]

    def _take_new(self, room: int) -> list[StreamMessage]:
        taken: list[StreamMessage] = []
        while len(taken) < room and self._position < self.stream.last_seq:
            self._position += 1
            message = self.stream.at(self._position)
            if self.matches(message.subject):
                taken.append(message)
        return taken

    def _deliver(self, seq: int, to: object) -> tuple[int, int]:
        before = self._unanswered.get(seq)
        deliveries = 1 + (before.deliveries if before is not None else 0)
        due_s = self.stream.clock.monotonic_s() + ACK_WAIT_S
        self._unanswered[seq] = _Unanswered(deliveries=deliveries, due_s=due_s, to=to)
        self._delivered += 1
        return deliveries, self._delivered


@dataclass(frozen=True, kw_only=True)
class MemoryDelivery(Generic[T]):
    """See `streams.ports.delivery.Delivery`."""

    content: T
    seq: int
    deliveries: int
    nth: int
    at: datetime
    trace: str
    durable: Durable

    async def ack(self) -> None:
        """See `Delivery.ack`."""
        self.durable.settle(self.seq)

    async def nak(self, *, delay_s: float = 0.0) -> None:
        """See `Delivery.nak`."""
        self.durable.hand_back(self.seq, delay_s=delay_s)

    async def term(self, reason: str) -> None:  # noqa: ARG002 - the server logs it; we have no log
        """See `Delivery.term`."""
        self.durable.settle(self.seq)


class MemorySource(Generic[T]):
    """See `streams.ports.delivery.Source`. Its durables, at least one, share one bell."""

    def __init__(self, durables: Sequence[Durable], *, parse: Callable[[StreamMessage], T]) -> None:
        self._durables = durables
        self._parse = parse
        self._turn = 0
        self._is_closed = False

    @property
    def pending(self) -> int:
        """See `Source.pending`."""
        return sum(durable.pending for durable in self._durables)

    async def receive(
        self, *, room: int, wait_s: float, check: Callable[[], None] | None = None
    ) -> Sequence[MemoryDelivery[T]]:
        """See `OrderedSource.receive`; `ValueError` if `room` is less than 1."""
        if room < 1:
            raise ValueError(f"room for {room} deliveries: a source returns at least 1")
        if check is not None:
            check()
        return await self._durables[0].stream.bell.wait_some(
            lambda: self._take(room),
            wait_s=wait_s,
            matches=self._matches,
            next_due_s=self._next_due_s,
            is_over=lambda: self._is_closed,
        )

    async def position(self) -> QueuePosition:
        """See `OrderedSource.position`; `ValueError` if it has several durables."""
        (durable,) = self._durables
        return durable.position()

    async def pause(self) -> None:
        """See `Source.pause`. There is nothing to do: only what is returned was ever taken."""

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """See `Source.hand_back`."""
        for durable in self._durables:
            if is_whole:
                durable.hand_back_all(of=self)
        return is_whole

    async def close(self) -> None:
        """See `Source.close`."""
        self._is_closed = True
        self._durables[0].stream.bell.ring()

    def _matches(self, subject: str) -> bool:
        return any(durable.matches(subject) for durable in self._durables)

    def _next_due_s(self) -> float:
        return min(durable.next_due_s() for durable in self._durables)

    def _take(self, room: int) -> Sequence[MemoryDelivery[T]]:
        """Return what waits: from each an equal share of the room, and each is first in turn."""
        if self._is_closed:
            return ()
        if (stream := self._durables[0].stream).is_deleted:
            raise NoSuchStream(stream.name)
        taken: list[MemoryDelivery[T]] = []
        turn, count = self._turn, len(self._durables)
        for nth in range(count):
            share = math.ceil((room - len(taken)) / (count - nth))
            taken += self._take_from(self._durables[(turn + nth) % count], share)
        self._turn = (turn + 1) % count
        return taken

    def _take_from(self, durable: Durable, room: int) -> Sequence[MemoryDelivery[T]]:
        return [
            MemoryDelivery(
                content=self._parse(message),
                seq=message.seq,
                deliveries=deliveries,
                nth=nth,
                at=message.at,
                trace=message.headers.get(TRACE_HEADER, ""),
                durable=durable,
            )
            for message, deliveries, nth in durable.take(room, to=self)
        ]
