"""Timers on JetStream: messages that the server publishes when they are due.

A pending timer is one message with a schedule (ADR-51 of the server) on a subject of its own;
another one there replaces it. When it is due the server moves its body and our headers into the
actor's queue, in the same stream. A timer that is sent at once is put there by us.

**Lost answers.** Each arming has a message id, so a repeated one is stored once. One that expects a
revision may meet its own first copy instead: with one replica the server compares revisions before
ids. Then the pending timer is ours if it has our id. If none is pending, ours may have fired or may
never have been stored, and nobody can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from streams.errors import TimerConflict, UnknownOutcome
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api, stored
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.messages.grouping import Groups, store_checked, store_surely
from streams.jetstream.messages.publish import Write
from streams.jetstream.ports.merge import open_work, work_consumers
from streams.layout import Stream
from streams.ports.delivery import Source, Unreadable
from streams.ports.timers import Due, PendingTimer, Timer
from streams.subjects import Stack
from streams.wire.timers import (
    TIMER_ID_HEADER,
    due_time,
    parse_due,
    parse_pending,
    sent_headers,
    timer_body,
    timer_headers,
)

SCHEDULE_MIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""The earliest time of a schedule; what was due before it fires at once like all that is past. The
server counts nanoseconds in 64 bits: one for the year 1600 never fired (measured)."""


class JetStreamTimers:
    """`Timers` in the work of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link = link
        self._stack = stack
        self._groups = Groups(link)

    async def arm(
        self, timer: Timer, *, at: datetime, expecting: int | None = None, trace: str = ""
    ) -> int:
        """See `Timers.arm`."""
        due_at = due_time(at)
        subject = self._stack.timer(timer.actor, timer.purpose, timer.key)
        more = timer_headers(id=self._link.unique(), trace=trace)
        more |= schedule(due_at, target=self._stack.due_of(subject))
        if expecting is not None:  # guard: timer-as-read-replaced
            more[headers.EXPECTED_SEQ] = str(expecting)
        stream = self._stack.stream_of(subject)
        return await store_checked(
            self._link,
            self._groups.to(stream),
            Write(subject, timer_body(timer, due_at=due_at), more, key=subject),
            find=partial(stored.last, self._link, stream, subject),
            mark=TIMER_ID_HEADER,
            conflict=partial(TimerConflict, subject, expected=expecting or 0),
            gone=partial(UnknownOutcome, subject, detail="it may have fired"),
        )

    async def send(self, timer: Timer, *, id: str, trace: str = "") -> None:
        """See `Timers.send`."""
        more = sent_headers(id=id, trace=trace)
        subject = self._stack.due_of(self._stack.timer(timer.actor, timer.purpose, timer.key))
        data = timer_body(timer, due_at=self._link.clock.now())
        group = self._groups.to(self._stack.stream_of(subject))
        await store_surely(self._link, group, Write(subject, data, more, key=id))

    async def pending(self, actor: str, purpose: str, key: str) -> PendingTimer | None:
        """See `Timers.pending`."""
        subject = self._stack.timer(actor, purpose, key)
        found = await stored.last(self._link, self._stack.stream_of(subject), subject)
        if found is None:
            return None
        return parse_pending(found.data, subject=subject, revision=found.seq)

    async def keys(self, actor: str, purpose: str) -> Sequence[str]:
        """See `Timers.keys`."""
        found: list[str] = []
        for partition in self._stack.partitions_of(Stream.WORK):
            stream = self._stack.stream(Stream.WORK, partition)
            filter = self._stack.timers_of(actor, purpose, partition)
            counts = await stored.counts(self._link, stream, filter)
            timers = (self._stack.timer_of(subject) for subject in counts)
            found += [timer[2] for timer in timers if timer is not None]
        return found

    async def cancel(
        self, actor: str, purpose: str, key: str, *, expecting: int | None = None
    ) -> None:
        """See `Timers.cancel`."""
        subject = self._stack.timer(actor, purpose, key)
        stream, revision = self._stack.stream_of(subject), expecting
        if revision is None:  # guard: timer-cancelled-as-read
            found = await stored.last(self._link, stream, subject)
            if found is None:
                return
            revision = found.seq
        # Up to this one: a late copy of the request takes none that was armed meanwhile.
        what = {"filter": subject, "seq": revision + 1}  # guard: cancel-spares-later-arming
        await api.ask(self._link, f"STREAM.PURGE.{stream}", what, about=subject)

    async def backlog(self, actor: str) -> int:
        """See `Timers.backlog`."""
        # A work queue drops what is answered for, so whatever it holds still waits.
        count = 0
        for partition in self._stack.partitions_of(Stream.WORK):
            stream = self._stack.stream(Stream.WORK, partition)
            subject = self._stack.due(actor, partition)
            count += sum((await stored.counts(self._link, stream, subject)).values())
        return count

    async def open(self, actor: str) -> Source[Due | Unreadable]:
        """See `Timers.open`."""
        due = partial(self._stack.due, actor)
        consumers = work_consumers(self._stack, self._stack.due_durable(actor), due)
        return await open_work(self._link, consumers, self._parse)

    def _parse(self, arrived: Arrival) -> Due | Unreadable:
        return parse_due(arrived, stream=self._stack.stream_of(arrived.subject))


def schedule(due_at: datetime, *, target: str) -> Headers:
    """Return the headers that have the server publish a message again into `target`."""
    # guard: overdue-timer-fires
    said = max(due_at, SCHEDULE_MIN).isoformat(timespec="microseconds")
    return {
        headers.SCHEDULE: f"@at {said.replace('+00:00', 'Z')}",
        headers.SCHEDULE_TARGET: target,
    }
