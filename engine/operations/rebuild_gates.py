"""Makes the keys of the gates anew that follow from the log, where they are missing.

    fence     whoever published what follows from commits is refused from now on
    read      every public event that is kept, and every commit
    put       cooldowns, holds, places, counts, breakers: those keys that are missing
    carry out what the reactors may have left of their last commits, and note their positions

Each step may be repeated. Nothing of the stack runs meanwhile, and the positions come last: without
them no reactor begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

from engine.operations.remembered import Remembered, RememberedKey
from engine.reactor.covered import CoveredEpisodes
from engine.reactor.position import Position
from engine.reactor.reactor import followed
from engine.reactor.rebuild import (
    PublishedEvents,
    carry_out_rest,
    fence,
    read_commits,
)
from engine.runtime.gather import gather_bounded
from streams.clock import Clock, SystemClock
from streams.errors import RevisionConflict, Unavailable
from streams.keys import PUBLISHED, published_key
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.model.followed import Followed, encode_followed
from streams.model.losses import FIRST_SEQ, StreamState
from streams.ports.all import Ports
from streams.ports.domain_events import DomainEvent
from streams.ports.log import START

PUTS_IN_FLIGHT_MAX: Final = 32
"""Keys that are put at a time."""

_CLOCK: Final = SystemClock()


async def rebuild_gates(ports: Ports, *, clock: Clock = _CLOCK) -> Mapping[str, int]:
    """Put the keys that are missing; return how many of each kind, by the first token of the key.

    Raises:
        UnreadableEvent: a newer version has written a commit. Nothing is forgotten: repeat it with
            that version.
        Unavailable: the log is away, or a stream is not there. Repeat it.
    """
    places = list(followed(ports.stack))
    parts = {place: ports.stack.part(*place) for place in places}
    lost = [place for place in places if (await Position.read(ports, parts[place])).is_missing]
    writers = {place: await fence(ports, clock, parts[place]) for place in lost}
    remembered = Remembered()
    published = {place: await _published(ports, place) for place in places}
    oldest_at = await _read_events(ports, remembered, published.values())
    covered = {
        place: await _read_commits(ports, remembered, published[place], place, oldest_at)
        for place in places
    }
    positions = {parts[place]: published[place].carried_out for place in lost}
    counts = Counter[str]()
    keys = [*remembered.keys(clock.now()), *remembered.ends(positions)]
    await gather_bounded(partial(_put, ports, counts), keys, in_flight_max=PUTS_IN_FLIGHT_MAX)
    for place in lost:
        found = published[place]
        await carry_out_rest(ports, clock, place, published=found, writer=writers[place])
        position = Followed(found.newest, covered[place].first_seq)
        key, value = published_key(parts[place]), encode_followed(position)
        await ports.gates.put(key, value, after=0)  # guard: rebuilt-position-comes-last
        counts[PUBLISHED] += 1
    return counts


async def _put(ports: Ports, counts: Counter[str], wanted: RememberedKey) -> None:
    with suppress(RevisionConflict):  # It is there, and knows better.
        # guard: rebuilt-key-replaces-none
        await ports.gates.put(wanted.key, wanted.value, after=0, ttl_s=wanted.ttl_s)
        counts[wanted.key.partition(".")[0]] += 1


async def _published(ports: Ports, place: tuple[Stream, int]) -> PublishedEvents:
    part = ports.stack.part(*place)
    state = await _state(ports, part)
    made_at = datetime.fromisoformat(state.created)
    return PublishedEvents(part, since=made_at, head=state.last_seq)


async def _read_events(
    ports: Ports, remembered: Remembered, published: Iterable[PublishedEvents]
) -> datetime:
    """Read all events that are kept; return since when all are."""
    everyone, events = [*published], await _state(ports, Stream.EVENTS)
    oldest_at = datetime.max.replace(tzinfo=UTC)
    async for event in _every_event(ports):
        oldest_at = min(oldest_at, event.at)
        remembered.note(event)
        for each in everyone:
            each.note(event)
    # What was told before the stream of events was made is in none that is kept.
    is_whole = events.first_seq == FIRST_SEQ
    made_at = datetime.fromisoformat(events.created)  # guard: told-before-events-not-again
    return made_at if is_whole else oldest_at


async def _every_event(ports: Ports) -> AsyncGenerator[DomainEvent, None]:
    after = START
    while page := await ports.domain_events.page(after=after):
        after = page[-1].seq
        for event in page:
            if isinstance(event, DomainEvent):
                yield event


async def _read_commits(
    ports: Ports,
    remembered: Remembered,
    published: PublishedEvents,
    place: tuple[Stream, int],
    oldest_at: datetime,
) -> CoveredEpisodes:
    """Read all commits of a stream; return what the leases of nodes stand for after them.

    What came to the stream when that was made has no events in it, and those of what is older than
    any event that is kept are gone.
    """
    covered, floor, gone_before = CoveredEpisodes(), START, max(published.since, oldest_at)
    async for records in read_commits(ports, place, after=START, up_to=published.head):
        for record in records:
            if place[0] in AGGREGATE_STREAMS:
                remembered.add(record, part=published.part)
            covered.note(record, at_s=0.0)
            if record.commit.at < gone_before:  # guard: rebuilt-moved-commits-not-told
                floor = record.seq
    published.begin_at(floor)
    return covered


async def _state(ports: Ports, part: str) -> StreamState:
    state = await ports.states.of(part)
    if state is None:
        raise Unavailable(f"stream {part}", detail="there is none")
    return state
