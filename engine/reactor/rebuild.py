"""Finds the position of a reactor again that was lost, and carries out what it may have left.

    ──carried out──▶ │ the newest commits: in part ──▶ │ nothing of these yet ──▶
                                                       ▲ what the newest public event follows from

A reactor takes at most `COMMITS_MAX` commits at a time, in the order of their stream, and begins
none of the next ones before all of these are carried out. Every public event says which commit it
follows from, so the newest event says where the reactor was. What follows from the commits before
that, as many as it takes at a time, is carried out once more, without the events that are there,
however long ago they were published. Commands, timers and orders may come twice as ever.

Nothing else of the stack runs meanwhile. A fence sees to that: whoever led before is refused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from engine.reactor.count_ends import count_ends
from engine.reactor.reactor import COMMITS_MAX, carry_out, derive
from engine.reactor.states import AggregateStates
from streams.clock import Clock, us_of
from streams.errors import Unavailable
from streams.keys import started_event
from streams.layout import Stream
from streams.model.losses import keeps_all
from streams.ports.all import Ports
from streams.ports.domain_events import DomainEvent, FencedWriter, Publication
from streams.ports.log import START, Recorded

SILENT_S: Final = 5.0
"""Longest wait for commits that are there, in seconds."""

KEPT_MAX: Final = 16 * COMMITS_MAX
"""Ids of events that are kept in any case."""

DIGITS_MAX: Final = 19
"""Longest number of a commit: the server counts in 64 bits."""


@dataclass
class PublishedEvents:
    """What the reactor of one stream has published last."""

    part: str
    since: datetime
    """When the stream was made: what follows from an earlier one of that name does not count."""
    head: int
    newest: int = START
    """The commit that the newest event follows from, or `floor`."""
    floor: int = START
    """The newest commit of which the events may be gone: they are not published again."""
    _seqs: dict[str, int] = field(default_factory=dict)
    """Id of an event → the commit that it follows from."""
    _room: int = KEPT_MAX
    """How many of them there may be before those are dropped that are too old to count."""

    def note(self, event: DomainEvent) -> None:
        """Note a public event, if it is one of this stream."""
        part, _, said = event.follows.partition("/") if event.follows else ("", "", "")
        # guard: other-streams-events-no-position
        is_number = said.isdecimal() and len(said) <= DIGITS_MAX
        if part != self.part or not is_number or event.at < self.since:
            return
        seq = int(said)
        if seq > self.head:  # guard: event-beyond-stream-no-position
            return
        self.newest = max(self.newest, seq)
        self._seqs[event.id] = seq
        if len(self._seqs) > self._room:
            done = self.carried_out
            self._seqs = {id_: each for id_, each in self._seqs.items() if each > done}
            self._room = max(KEPT_MAX, 2 * len(self._seqs))

    @property
    def carried_out(self) -> int:
        """The commit up to which all was carried out for certain."""
        # guard: last-batch-carried-out-again
        return max(self.floor, self.newest - COMMITS_MAX)

    def begin_at(self, floor: int) -> None:
        """Take it that all up to `floor` was carried out."""
        self.floor, self.newest = floor, max(self.newest, floor)

    def has(self, id_: str) -> bool:
        """Return whether an event that follows from a later commit than that is there."""
        return id_ in self._seqs


@dataclass(frozen=True)
class MissingEventsWriter:
    """See `FencedWriter`; leaves out what is there."""

    writer: FencedWriter
    published: PublishedEvents

    async def publish(self, events: Sequence[Publication]) -> None:
        """See `FencedWriter.publish`."""
        # guard: rebuilt-position-publishes-once
        missing = [each for each in events if not self.published.has(each.id)]
        if missing:
            await self.writer.publish(missing)


async def fence(ports: Ports, clock: Clock, part: str) -> FencedWriter:
    """Have whoever published what follows from the stream `part` refused from now on."""
    payload = {"node": "", "stream": part}
    at_us = us_of(clock.now())
    id_ = f"reactor.{part}.rebuild.{at_us:x}"
    return await ports.domain_events.fence(started_event(part), payload, id=id_)


async def carry_out_rest(
    ports: Ports,
    clock: Clock,
    place: tuple[Stream, int],
    *,
    published: PublishedEvents,
    writer: FencedWriter,
) -> None:
    """Carry out what the reactor of a stream, and a partition of it, may have left of its last.

    `published` has all events of that stream since its `writer` was made. The gates have what was
    counted of its ends. Raises `UnreadableEvent` if a newer version has written one of its commits.
    """
    part, done = published.part, published.carried_out
    missing, states = MissingEventsWriter(writer, published), AggregateStates(ports, clock)
    async for records in read_commits(ports, place, after=done, up_to=published.newest):
        derived = await derive(records, states)
        changes = await count_ends(ports.gates, derived.ends, part=part, published=done)
        await carry_out([*derived.effects, *changes], missing, ports, part=part)
        if derived.failure is not None:
            raise derived.failure


async def read_commits(
    ports: Ports, place: tuple[Stream, int], *, after: int, up_to: int
) -> AsyncGenerator[Sequence[Recorded], None]:
    """Yield the commits of a stream, and a partition of it, past `after` up to `up_to`, in order.

    Raises `Unavailable` if they end before that, in a stream that keeps all that it has.
    """
    stream, partition = place
    seq, part = after, ports.stack.part(stream, partition)
    async with ports.log.follow(stream, after=after, partition=partition) as follower:
        while seq < up_to:
            records = await follower.receive(most=COMMITS_MAX, wait_s=SILENT_S)
            if not records:
                break
            seq = records[-1].seq
            kept = [each for each in records if each.seq <= up_to]
            if kept:
                yield kept
    if seq < up_to and keeps_all(part):
        raise Unavailable(f"stream {part}", detail=f"nothing was sent of it past {seq:,}")
