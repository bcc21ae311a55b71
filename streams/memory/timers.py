"""Timers in memory: a due timer moves into its queue when somebody next looks.

Nothing runs between two calls, so due timers are moved by each receive, arm and query; a waiting
`receive` looks again when the next timer is due. They report that they fired in time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from streams.errors import TimerConflict
from streams.layout import Stream
from streams.memory.durable import Durable, MemorySource
from streams.memory.stream import MemoryStream
from streams.ports.delivery import Unreadable
from streams.ports.timers import KEYS_MAX, Due, PendingTimer, Timer
from streams.subjects import Stack
from streams.tokens import matches
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage
from streams.wire.timers import (
    due_time,
    parse_due,
    parse_pending,
    sent_headers,
    timer_body,
    timer_headers,
)


class _Armed(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    fires_at: datetime
    """When it is due, or when it was armed if that was later."""
    revision: int
    data: bytes
    headers: Mapping[str, str]


class MemoryTimers:
    """See `streams.ports.timers.Timers`."""

    def __init__(self, streams: Mapping[str, MemoryStream], *, stack: Stack) -> None:
        self._streams = streams
        self._stack = stack
        self._first = streams[stack.stream(Stream.WORK)]
        self._armed: dict[str, _Armed] = {}
        self._order: list[tuple[datetime, int, str]] = []
        """When each fires, its revision and its subject; also of those that were replaced."""
        self._revision = 0
        self._durables: dict[tuple[str, int], Durable] = {}

    async def arm(
        self, timer: Timer, *, at: datetime, expecting: int | None = None, trace: str = ""
    ) -> int:
        """See `Timers.arm`."""
        due_at = due_time(at)
        subject = self._stack.timer(timer.actor, timer.purpose, timer.key)
        data = timer_body(timer, due_at=due_at)
        self.fire()
        # guard: memory-timer-as-read-replaced
        if expecting is not None and expecting != self._revision_of(subject):
            raise TimerConflict(subject, expected=expecting)
        self._revision += 1
        self._put(
            subject,
            _Armed(
                target=self._stack.due_of(subject),
                fires_at=max(due_at, self._first.clock.now()),
                revision=self._revision,
                data=data,
                headers=timer_headers(id=f"timer-{self._revision}", trace=trace),
            ),
        )
        return self._revision

    async def send(self, timer: Timer, *, id: str, trace: str = "") -> None:
        """See `Timers.send`."""
        more = sent_headers(id=id, trace=trace)
        target = self._stack.due_of(self._stack.timer(timer.actor, timer.purpose, timer.key))
        data = timer_body(timer, due_at=self._first.clock.now())
        self.fire()
        self._streams[self._stack.stream_of(target)].publish(target, data, more)

    async def pending(self, actor: str, purpose: str, key: str) -> PendingTimer | None:
        """See `Timers.pending`."""
        subject = self._stack.timer(actor, purpose, key)
        self.fire()
        armed = self._armed.get(subject)
        if armed is None:
            return None
        return parse_pending(armed.data, subject=subject, revision=armed.revision)

    async def keys(self, actor: str, purpose: str) -> Sequence[str]:
        """See `Timers.keys`."""
        self.fire()
        found: list[str] = []
        for partition in self._stack.partitions_of(Stream.WORK):
            pattern = self._stack.timers_of(actor, purpose, partition)
            # guard: timer-keys-of-actor
            subjects = (each for each in self._armed if matches(pattern, each))
            timers = map(self._stack.timer_of, islice(subjects, KEYS_MAX))
            found += [timer[2] for timer in timers if timer is not None]
        return found

    async def cancel(
        self, actor: str, purpose: str, key: str, *, expecting: int | None = None
    ) -> None:
        """See `Timers.cancel`."""
        subject = self._stack.timer(actor, purpose, key)
        self.fire()
        # guard: memory-timer-cancelled-as-read
        if expecting is None or self._revision_of(subject) <= expecting:
            self._armed.pop(subject, None)

    async def backlog(self, actor: str) -> int:
        """See `Timers.backlog`."""
        self.fire()
        return sum(self._waiting(actor, each) for each in self._stack.partitions_of(Stream.WORK))

    def durables(self) -> Iterator[tuple[str, Durable]]:
        """Yield every queue that was ever opened, with its name, from each partition."""
        yield from ((name, each) for (name, _), each in self._durables.items())

    def armed(self) -> Iterator[tuple[str, datetime]]:
        """Yield the subject of every timer that waits, and when it is due."""
        yield from ((subject, armed.fires_at) for subject, armed in self._armed.items())

    async def open(self, actor: str) -> MemorySource[Due | Unreadable]:
        """See `Timers.open`."""
        partitions = self._stack.partitions_of(Stream.WORK)
        return MemorySource([self._durable(actor, each) for each in partitions], parse=self._parse)

    def fire(self) -> None:
        """Put what is due by now into its queue, in the order in which it became due."""
        now = self._first.clock.now()
        while (subject := self._next()) is not None and self._armed[subject].fires_at <= now:
            armed = self._armed.pop(subject)
            kept = {key: said for key, said in armed.headers.items() if key != MESSAGE_ID_HEADER}
            stream = self._streams[self._stack.stream_of(armed.target)]
            stream.publish(armed.target, armed.data, kept, at=armed.fires_at)

    def next_due_s(self) -> float:
        """Return when the next timer fires, on the monotonic clock."""
        subject = self._next()
        if subject is None:
            return math.inf
        clock = self._first.clock
        left = self._armed[subject].fires_at - clock.now()
        return clock.monotonic_s() + left.total_seconds()

    def _put(self, subject: str, armed: _Armed) -> None:
        self._armed[subject] = armed
        heapq.heappush(self._order, (armed.fires_at, armed.revision, subject))
        self._first.bell.ring(armed.target)  # Its queue may have to be looked into sooner.

    def _next(self) -> str | None:
        """Return the subject of the timer that fires next, forgetting those that never will."""
        while self._order:
            _, revision, subject = self._order[0]
            if self._revision_of(subject) == revision:  # guard: postponed-hides-no-earlier
                return subject
            heapq.heappop(self._order)
        return None

    def _revision_of(self, subject: str) -> int:
        armed = self._armed.get(subject)
        return 0 if armed is None else armed.revision

    def _waiting(self, actor: str, partition: int) -> int:
        subject = self._stack.due(actor, partition)
        due = self._streams[self._stack.stream_of(subject)].of(subject)
        queue = self._durables.get((self._stack.due_durable(actor), partition))
        return sum(queue is None or queue.is_waiting(message.seq) for message in due)

    def _durable(self, actor: str, partition: int) -> Durable:
        name = self._stack.due_durable(actor), partition
        if name not in self._durables:
            stream = self._streams[self._stack.stream(Stream.WORK, partition)]
            self._durables[name] = _DueTimers(self, stream, self._stack.due(actor, partition))
        return self._durables[name]

    def _parse(self, message: StreamMessage) -> Due | Unreadable:
        return parse_due(message, stream=self._stack.stream_of(message.subject))


class _DueTimers(Durable):
    """A queue that has what is due fire before it is looked into."""

    def __init__(self, timers: MemoryTimers, stream: MemoryStream, subject: str) -> None:
        super().__init__(stream, after=0, matches=lambda each: each == subject)
        self._timers = timers

    @property
    def pending(self) -> int:
        self._timers.fire()
        return super().pending

    def take(self, room: int, *, to: object) -> Sequence[tuple[StreamMessage, int, int]]:
        self._timers.fire()
        return super().take(room, to=to)

    def next_due_s(self) -> float:
        return min(super().next_due_s(), self._timers.next_due_s())
