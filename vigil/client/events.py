"""Domain events. Publishing one loads no engine, so that a command starts fast."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from projections.postgres.reader import list_refusals
from projections.records import RefusalSummary
from streams.clock import Clock
from streams.errors import BadName, NoSuchStream
from streams.json import JsonObject
from streams.layout import Stream
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EVENT_BYTES_MAX, SINCE_MAX, DomainEvent
from streams.public_events import PUBLIC_EVENTS
from streams.subjects import Stack
from streams.tokens import event_name, matches
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage, parse_event
from vigil.asking.listening import why_nobody_listens, why_of_engine
from vigil.client.connections import Connections
from vigil.client.page import Page, PagedList
from vigil.errors import EventsMissed, Mistake, Trouble, told

if TYPE_CHECKING:
    from engine.app.actor import Actor
    from engine.operations.events.why_event import EventVerdicts
    from streams.model.losses import StreamState
    from streams.ports.all import Ports
    from vigil.asking.would import EventsReplayed, WouldVerdicts


LOOK_S: Final = 0.2
"""Between two looks for new events, in seconds."""


REPLAYED_DEFAULT: Final = 100_000
"""Most events that rules are looked at with by default."""

RULINGS_KEPT_DEFAULT: Final = 20


REFUSALS: Final = PagedList(
    "refusals", RefusalSummary, list_refusals, {"refused_at": datetime, "journal_seq": int}
)


class PublishReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is stored, or would be."""

    id: str
    seq: int
    """Stream sequence, from 1; 0: this was a dry run, and nothing is stored."""
    is_new: bool
    """False: within two minutes, an event with the same id was published before."""
    unheard: str
    """Why no node hears it, in words; empty: one does, or nobody knows."""
    of_engine: str
    """That the engine publishes such an event itself, in words; empty: it does not."""


LATEST_MAX: Final = 500
"""How many of the newest messages are looked at for events that were published last."""


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that somebody has published."""

    id: str
    name: str
    seq: int
    """Stream sequence, from 1."""
    at: datetime
    """When the server stored it."""


@dataclass(frozen=True)
class EventCalls:
    """Calls about domain events: `client.events`."""

    _connections: Connections

    async def publish(
        self,
        name: str,
        payload: JsonObject | bytes,
        *,
        id: str | None = None,
        dry_run: bool = False,
    ) -> PublishReceipt:
        """Publish a domain event, and return once it is stored.

        Args:
            payload: an object, or the JSON of one.
            id: within two minutes, an event with the same id is kept once: give the same one again
                where the first call may have been cut off. None: a new one.
            dry_run: store nothing, and return what can be told without: whether a node hears it.
                `would_fire` tells what it would fire.

        Raises:
            Mistake: no engine would accept it.
        """
        connections = self._connections
        chosen = id or self._new_id()
        body = _checked(
            payload, name=name, id=chosen, stack=connections.stack, clock=connections.clock
        )
        async with connections.log(is_reading=dry_run) as ports:
            newest_seq = await ports.log.head(Stream.EVENTS)
            seq = 0 if dry_run else await ports.domain_events.publish(name, body, id=chosen)
            return PublishReceipt(
                id=chosen,
                seq=seq,
                is_new=seq > newest_seq,
                unheard=await why_nobody_listens(ports, name),
                of_engine=why_of_engine(name),
            )

    async def would_fire(
        self, name: str, payload: JsonObject | bytes, *, id: str | None = None
    ) -> WouldVerdicts:
        """Return which expectations an event would fire if it was published now, and why not.

        Nothing is published, and nothing is changed. The rules are those of the nodes that are up;
        what they remember, such as cooldowns and open episodes, may have changed by the time that
        the event is published.

        Args:
            payload: as for `publish`.
            id: as which it is looked at: where only a sample fires, it decides. None: a new one,
                which the answer has.

        Raises:
            Mistake: no engine would accept it.
        """
        from vigil.asking.would import would_now

        connections = self._connections
        chosen, clock = id or self._new_id(), connections.clock
        body = _checked(payload, name=name, id=chosen, stack=connections.stack, clock=clock)
        event = DomainEvent(id=chosen, name=name, payload=body, seq=0, at=clock.now())
        async with connections.log(is_reading=True) as ports:
            return await would_now(ports, event, clock=clock)

    async def publish_lines(
        self, name: str, lines: AsyncIterable[bytes], *, id: str | None = None
    ) -> int:
        """Publish an event for each of `lines` that is not blank, in order; return how many.

        Args:
            id: what their ids begin with; the number of the line follows.

        Raises:
            Mistake: no engine would accept a line; those before it are published.
        """
        connections = self._connections
        prefix, number, published = id or self._new_id(), 0, 0
        async with connections.log() as ports:
            async for line in lines:
                number += 1
                if not line.strip():
                    continue
                id_ = f"{prefix}-{number}"
                try:
                    body = _checked(
                        line.rstrip(b"\r\n"),
                        name=name,
                        id=id_,
                        stack=connections.stack,
                        clock=connections.clock,
                    )
                except Mistake as error:
                    raise Mistake(
                        f"line {number}: {error}; the lines before it are published"
                    ) from error
                await ports.domain_events.publish(name, body, id=id_)
                published += 1
        return published

    async def tail(
        self,
        *names: str,
        after: int | None = None,
        since: datetime | None = None,
        idle_s: float | None = None,
    ) -> AsyncIterator[DomainEvent]:
        """Yield events as they come, oldest first, those that the engine publishes included.

        It ends when it is closed or the client is, and goes on from the `seq` of an event with
        `after`. What is no event, such as a message that is not JSON, is passed over.

        Args:
            names: only events called so; `*` stands for one word, a last `>` for one or more.
            after: begin past this sequence; 0: with the oldest that is kept.
            since: begin with what was stored at that time or later. Without this and `after`, with
                what is published from now on.
            idle_s: end once it has read all that there is, and nothing called so has come for so
                long, in seconds; 0: with the newest that there is. None: never.

        Raises:
            Mistake: both `after` and `since` are given, or one of them cannot be; no event can be
                called so.
            EventsMissed: what follows the last place was removed before it was read, by its age for
                example. To go on without it, begin anew with the error's `last_seq` as `after`.
            Trouble: the stream ends before the place to go on from: it is another one by now.
        """
        _check_tail(names, after=after, since=since, idle_s=idle_s)
        clock = self._connections.clock
        place = after or None
        is_new = after is None and since is None
        came_s = clock.monotonic_s()
        while True:
            async with self._connections.log(is_reading=True) as ports:
                kept = await _kept(ports)
                head = kept.last_seq
                if is_new:
                    place, is_new = head, False
                if (place or 0) > head:  # guard: tail-of-another-stream-ends
                    raise Trouble(f"the stream of events ends at {head:,}, before {place:,}")
                if place is not None and place < kept.first_seq - 1:  # guard: tail-tells-of-gap
                    raise EventsMissed(place + 1, kept.first_seq - 1)
                page = (
                    await ports.domain_events.page(after=place or 0, since=since)
                    if head > (place or 0)
                    else []
                )
            for each in page:
                if place is not None and each.seq > place + 1:  # guard: tail-tells-page-gap
                    raise EventsMissed(place + 1, each.seq - 1)
                place = each.seq
                if isinstance(each, DomainEvent) and is_called(each.name, names):
                    yield each
                    came_s = clock.monotonic_s()
            if page and page[-1].seq < head:
                came_s = clock.monotonic_s()  # Who still reads what is old is not idle.
                continue
            if idle_s is not None and clock.monotonic_s() - came_s >= idle_s:
                return
            await clock.sleep(LOOK_S)

    async def latest(self, *, limit: int = 20) -> Sequence[PublishedEvent]:
        """Return the events that were published last, the newest first, without their payloads.

        Those that the engine publishes are left out, and so is what is no event: of the newest
        500 messages.

        Raises:
            Mistake: there can be no such `limit`.
        """
        if not 1 <= limit <= LATEST_MAX:  # guard: latest-is-a-count
            raise Mistake(f"limit: {limit!r} is not from 1 to {LATEST_MAX:,}")
        async with self._connections.log(is_reading=True) as ports:
            head = await ports.log.head(Stream.EVENTS)
            after, found = max(head - LATEST_MAX, 0), list[PublishedEvent]()
            while page := await ports.domain_events.page(after=after):
                after = page[-1].seq
                found += [
                    PublishedEvent(id=each.id, name=each.name, seq=each.seq, at=each.at)
                    for each in page
                    if isinstance(each, DomainEvent) and each.name not in PUBLIC_EVENTS
                ]
                if after >= head:
                    break
        return found[::-1][:limit]

    async def why_unheard(self, name: str) -> str:
        """Return why no node hears the event `name`, in words; empty: one does, or nobody knows."""
        async with self._connections.log() as ports:
            return await why_nobody_listens(ports, name)

    async def why(self, event_id: str) -> EventVerdicts:
        """Return what each expectation did with an event: the episode, or why there is none.

        Of the last 24 hours, and the newest 200 refusals of each expectation; beyond that, only the
        episodes of an event are known.
        """
        from engine.operations.events.why_event import why_event

        async with self._connections.log(is_reading=True) as ports:
            return await why_event(ports, event_id, clock=self._connections.clock)

    async def refusals(
        self,
        *,
        actor: str | None = None,
        expectation: str | None = None,
        event: str | None = None,
        reason: str | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[RefusalSummary]:
        """Return events that did not fire an expectation, of the rows: the latest first.

        The newest 200 of each expectation are kept, for 24 hours.

        Args:
            event: only events called so; `tick`: ticks of schedules.
            reason: only those refused so, such as `cooldown`.
            after: the `next` of a page: what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`.
        """
        return await REFUSALS.page(
            self._connections,
            after=after,
            limit=limit,
            actor=actor,
            expectation=expectation,
            event=event,
            reason=reason,
            reverse=reverse,
        )

    async def would(
        self,
        *actors: Actor,
        since: datetime,
        limit: int = REPLAYED_DEFAULT,
        kept_max: int = RULINGS_KEPT_DEFAULT,
        on_progress: Callable[[str], None] | None = None,
    ) -> EventsReplayed:
        """Return what rules would have fired for the events that are kept. It changes nothing.

        Cooldown, debounce and equal causes are built from these events alone. Each episode is taken
        to end at once and well.

        Args:
            actors: those whose rules are looked at, as an app has them.
            since: the first event is one that was stored at that time or later.
            limit: most events to read.
            kept_max: most rulings of each kind to return; all are counted.
            on_progress: is told in words how far it is.

        Raises:
            Mistake: no expectation of `actors` is fired by events of the stack, or `since` cannot
                be.
        """
        from engine.operations.events.would_fire import Replay
        from vigil.asking.would import replayed

        check_since(since)
        replay = Replay(actors, stack=self._connections.stack.name, kept_max=kept_max)
        if not replay.watching:
            raise Mistake("no expectation in it is fired by events of the stack")
        async with self._connections.log(is_reading=True) as ports:
            return await replayed(
                ports,
                replay,
                since=since,
                limit=limit,
                clock=self._connections.clock,
                say=on_progress or (lambda _: None),
            )

    def _new_id(self) -> str:
        return f"{self._connections.node}-{self._connections.clock.now().isoformat()}"


def check_since(since: datetime | None) -> None:
    """Raise `Mistake` if nothing can be looked for since a time."""
    if since is not None and since.tzinfo is None:
        raise Mistake(f"since: {since} has no time zone")
    if since is not None and since > SINCE_MAX:  # guard: since-within-server-time
        raise Mistake(f"since: {since} is past {SINCE_MAX:%Y-%m-%d}, the latest")


def is_called(name: str, patterns: Sequence[str]) -> bool:
    """Return whether `name` fits one of `patterns`; without any, each does."""
    return not patterns or any(matches(each, name) for each in patterns)


async def _kept(ports: Ports) -> StreamState:
    found = await ports.states.of(Stream.EVENTS)
    if found is None:
        raise NoSuchStream(ports.stack.stream(Stream.EVENTS))
    return found


def _check_tail(
    names: Sequence[str], *, after: int | None, since: datetime | None, idle_s: float | None
) -> None:
    if after is not None and since is not None:
        raise Mistake("say after or since, not both")
    place: object = after
    is_whole = isinstance(place, int) and not isinstance(place, bool)
    # guard: place-is-a-sequence
    if after is not None and (not is_whole or after < 0):
        raise Mistake(
            f"after: {after!r} is no sequence, a whole number; 0 is before the first, and `seq` of "
            "an event is the place after it"
        )
    seconds: object = idle_s
    if seconds is not None and not isinstance(seconds, int | float):
        raise Mistake(f"idle_s: {idle_s!r} is not a number of seconds")
    check_since(since)
    for name in names:
        words = ("any" if each in ("*", ">") else each for each in name.split("."))
        with told():
            event_name(".".join(words))  # guard: tail-of-possible-names


def _checked(
    payload: JsonObject | bytes, *, name: str, id: str, stack: Stack, clock: Clock
) -> JsonObject:
    """Return the payload; raise `Mistake` if no engine would accept it."""
    try:
        data = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise Mistake(f"{name}: not JSON: {error}") from error
    if len(data) > EVENT_BYTES_MAX:  # No more is read, so nobody knows how much there is.
        raise Mistake(f"{name}: too_large: over {EVENT_BYTES_MAX:,} bytes, the limit of an event")
    try:
        headers, subject = {MESSAGE_ID_HEADER: id}, stack.event(name)
    except BadName as error:
        raise Mistake(str(error)) from error  # guard: bad-name-is-mistake
    sent = StreamMessage(seq=0, subject=subject, headers=headers, data=data, at=clock.now())
    event = parse_event(sent, stack=stack, stream=stack.stream(Stream.EVENTS))
    if isinstance(event, Unreadable):
        raise Mistake(f"{name}: {event.reason}: {event.detail}")
    return event.payload
