"""Every port of the log, as one process meets it through a network that misbehaves.

A request that was sent lands on its own, whatever becomes of the one who sent it. The
wrappers promise what the adapters to a real server promise, by the same means: a commit
without an answer is sent again and told from a rival's by its id; a message with an id is
sent until it is stored; an acknowledgement may get lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from projections.postgres.progress import heads
from streams.errors import (
    RevisionConflict,
    StreamError,
    Unavailable,
    UnknownOutcome,
    VersionConflict,
)
from streams.jetstream.connection.headers import EXPECTED_SEQ
from streams.jetstream.connection.settings import GroupSettings
from streams.jetstream.messages.grouping import Grouping
from streams.jetstream.messages.publish import Ack, BatchRefused, Write
from streams.json import JsonObject
from streams.layout import Kind, Stream
from streams.memory import MemoryPorts
from streams.memory.bucket import MemoryBucket
from streams.memory.durable import MemoryDelivery, MemorySource
from streams.model.commands import Command, WorkflowCommand
from streams.model.events import EpisodeFinished, EpisodeOpened, WorkflowFinished, WorkflowStarted
from streams.model.foreign_streams import ForeignStream
from streams.model.losses import StreamState
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry, BucketWatch
from streams.ports.delivery import QueuePosition, Unreadable
from streams.ports.domain_events import (
    NO_HEADERS,
    DomainEvent,
    FencedWriter,
    Publication,
    Sent,
)
from streams.ports.leases import RECLAIM_MAX, ClaimChange, ClaimWatch, Lease
from streams.ports.log import START, Commit, Follower, Recorded
from streams.ports.states import RawReader
from streams.ports.timers import Due, PendingTimer, Timer
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER
from tests.simulation.faults import Fault, Weather
from tests.simulation.life import Life
from vigil.testing.idle import done

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 7.0
"""How long a write keeps trying. Short, so that writes are given up while the lease holds, too."""

PAUSE_S: Final = 0.3
EAGER: Final = GroupSettings(least=1, is_fixed=True)
"""Whatever waits for an append in flight shares the next batch."""

LATENCY_S: Final = 0.02
SLOW_S: Final = 1.5
STALE_S: Final = 1.0
"""How long a read may lag."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One value that was put into a bucket."""

    at_s: float
    key: str
    value: bytes


class Arming(msgspec.Struct, frozen=True, kw_only=True):
    """One timer that was armed."""

    at_s: float
    timer: Timer
    due_at: datetime


@dataclass
class Servers:
    """What all processes share, and what the simulator alone knows about it."""

    ports: MemoryPorts
    weather: Weather
    stored_at_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """When each commit was stored, by its subject and sequence; in the order in which they were."""
    stored: list[Recorded] = field(default_factory=list)
    """What was stored, in that order."""
    unfinished: set[str] = field(default_factory=set)
    """Episodes and instances that have begun and have not ended."""
    shared: int = 0
    """Commits that were stored together with others' in one batch."""
    kept: list[Kept] = field(default_factory=list)
    """What was put into buckets, in order."""
    armed: list[Arming] = field(default_factory=list)
    """Timers that were armed, in order."""
    zombie_writes: int = 0
    """Appends under a claim that someone else had taken over."""
    trace: list[tuple[float, str, str, str]] = field(default_factory=list)
    """When, who, what, and what came of it."""

    def heads(self) -> dict[str, int]:
        """Return the newest sequence of each projection, by its name."""
        return done(heads(self.ports))

    def newest(self) -> int:
        """Return the place of the newest commit among all of journal and state, from 1."""
        return sum(self.heads().values())

    def note(self, who: str, what: str, outcome: object) -> None:
        now_s = asyncio.get_running_loop().time()
        self.trace.append((now_s, who, what, str(outcome)))


@dataclass
class Wire:
    """One process's connection."""

    life: Life
    servers: Servers

    async def request(self, what: str, effect: Callable[[], T]) -> T:
        """Have `effect` happen at the servers, and return what it returns.

        Raises:
            UnknownOutcome: no answer; it may have happened, or happen yet.
            Unavailable: it did not happen and will not.
            StreamError: what `effect` raised.
        """
        weather = self.servers.weather
        await self.life.passage()
        await self.strike(what, Fault.FROZEN, Fault.DEAD)
        fault = weather.draw(
            Fault.REFUSED, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE, Fault.SLOW
        )
        if fault is Fault.REFUSED:
            await self._unanswered(what, LATENCY_S)
            raise Unavailable(what, detail="refused")
        if fault is Fault.LOST_REQUEST:
            await self._unanswered(what, REQUEST_TIMEOUT_S)
            raise UnknownOutcome(what, detail="lost request")
        answer = self._send(what, effect, fault)
        if fault in {Fault.LOST_ANSWER, Fault.LATE}:
            await self._unanswered(what, REQUEST_TIMEOUT_S)
            raise UnknownOutcome(what, detail=str(fault))
        await self.strike(what, Fault.DEAD_AFTER)
        result = await answer
        await self.strike(what, Fault.FROZEN_AFTER)
        await self.life.passage()
        if isinstance(result, StreamError):
            raise result
        return result

    async def strike(self, what: str, *kinds: Fault) -> None:
        """Let one of `kinds` happen to the process itself, if it does."""
        fault = self.servers.weather.draw(*kinds) if self.life.is_mortal else None
        if fault is None:
            return
        self.servers.note(self.life.name, what, fault)
        if fault in {Fault.FROZEN, Fault.FROZEN_AFTER}:
            ttl_s = self.servers.ports.leases.ttl_s
            self.life.freeze(self.servers.weather.between(0.8 * ttl_s, 2.5 * ttl_s))
        else:
            self.life.die()
        await self.life.passage()

    async def _unanswered(self, what: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        await self.life.passage()
        self.servers.note(self.life.name, what, "no answer")

    def _send(
        self, what: str, effect: Callable[[], T], fault: Fault | None
    ) -> asyncio.Future[T | StreamError]:
        """Let `effect` happen after a while, and its result arrive after another."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T | StreamError] = loop.create_future()
        weather, sender = self.servers.weather, self.life.name
        ttl_s = self.servers.ports.leases.ttl_s
        slow_s = SLOW_S if fault is Fault.SLOW else LATENCY_S
        back_s = weather.between(0, slow_s)

        def arrive(result: T | StreamError) -> None:
            if not answer.done():
                answer.set_result(result)

        def land() -> None:
            result: T | StreamError
            try:
                result = effect()
            except StreamError as error:
                result = error
            self.servers.note(sender, what, _shown(result))
            loop.call_later(back_s, arrive, result)

        late = fault is Fault.LATE
        there_s = (
            weather.between(REQUEST_TIMEOUT_S, 3 * ttl_s) if late else weather.between(0, slow_s)
        )
        loop.call_later(there_s, land)
        return answer

    async def surely(self, what: str, effect: Callable[[], T]) -> T:
        """Have an `effect` that may be repeated happen, trying again for `PATIENCE_S`.

        Raises:
            UnknownOutcome, Unavailable: patience is over.
        """
        patience = Patience(self)
        while True:
            try:
                return await self.request(what, effect)
            except Unavailable as error:
                await patience.after(error)


class Patience:
    """How long one write keeps trying, and whether an earlier attempt may have worked."""

    def __init__(self, wire: Wire, *, patience_s: float = PATIENCE_S) -> None:
        self._wire = wire
        self._deadline_s = wire.life.clock.monotonic_s() + patience_s
        self.has_failed = False
        self.unsure = False

    async def after(self, error: Unavailable) -> None:
        """Wait before the next attempt, or raise what is known once patience is over."""
        self.has_failed = True
        self.unsure = self.unsure or isinstance(error, UnknownOutcome)
        if self._wire.life.clock.monotonic_s() + PAUSE_S > self._deadline_s:
            raised = UnknownOutcome if self.unsure else Unavailable
            raise raised(error.operation, detail=error.detail) from error
        await self._wire.life.clock.sleep(PAUSE_S)


def _shown(result: object) -> str:
    match result:
        case StreamError():
            return f"{type(result).__name__}: {result}"
        case int():
            return str(result)
        case _:
            return "nothing" if result is None else "ok"


@dataclass
class WiredStoring:
    """See `streams.jetstream.messages.grouping.Storing`."""

    wire: Wire

    async def store(self, write: Write) -> Ack:
        return await self.wire.request(f"append {_told(write)}", lambda: self._store(write))

    async def store_all(self, writes: Sequence[Write]) -> Sequence[Ack]:
        what = f"append together {'; '.join(map(_told, writes))}"
        return await self.wire.request(what, lambda: self._store_all(writes))

    def _store_all(self, writes: Sequence[Write]) -> Sequence[Ack]:
        """Store `writes` whole or not at all."""
        log = self.wire.servers.ports.log
        for write in writes:
            last = done(log.last(write.subject))
            if int(write.headers[EXPECTED_SEQ]) != (last.seq if last else START):
                raise BatchRefused(f"wrong last sequence of {write.subject}")
        self.wire.servers.shared += len(writes)
        return [self._store(write) for write in writes]

    def _store(self, write: Write) -> Ack:
        servers, subject = self.wire.servers, write.subject
        commit = codec.decode_commit(
            write.data, subject=subject, seq=0, commit_id=write.headers[COMMIT_HEADER]
        ).commit
        after = int(write.headers[EXPECTED_SEQ])
        seq = done(servers.ports.log.append(subject, commit, after=after))
        servers.stored_at_s[subject, seq] = asyncio.get_running_loop().time()
        servers.stored.append(Recorded(subject=subject, seq=seq, commit=commit))
        if any(isinstance(event, EpisodeOpened | WorkflowStarted) for event in commit.events):
            servers.unfinished.add(subject)
        if any(isinstance(event, EpisodeFinished | WorkflowFinished) for event in commit.events):
            servers.unfinished.discard(subject)
        return Ack(seq=seq)


def _told(write: Write) -> str:
    said = write.headers
    return f"{write.subject.split('.', 1)[1]} {said[COMMIT_HEADER]} after {said[EXPECTED_SEQ]}"


@dataclass
class WiredLog:
    """See `streams.ports.log.EventLog`. Appends of one process share batches, as a server does."""

    wire: Wire
    _grouping: Grouping = field(init=False)

    def __post_init__(self) -> None:
        self._grouping = Grouping(WiredStoring(self.wire), EAGER, self.wire.life.clock)

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        impatient = self.wire.servers.weather.draw(Fault.IMPATIENT)
        patience = Patience(self.wire, patience_s=0.0 if impatient else PATIENCE_S)
        said = {EXPECTED_SEQ: str(after), COMMIT_HEADER: commit.id}
        write = Write(subject, codec.encode_commit(commit), said, key=subject)
        while True:
            try:
                return (await self._grouping.store(write, alone=patience.has_failed)).seq
            except VersionConflict:
                if patience.unsure and (seq := await self._ours(subject, commit, patience, after)):
                    return seq
                self.wire.servers.zombie_writes += _is_of_a_tenure(commit)
                raise
            except Unavailable as error:
                await patience.after(error)

    async def _ours(self, subject: str, commit: Commit, patience: Patience, after: int) -> int:
        """Return where the commit after `after` is, if it is `commit`; else 0."""
        log = self.wire.servers.ports.log
        while True:
            try:
                found = await self.wire.request(
                    f"settle {commit.id}", lambda: done(log.read(subject, after=after))
                )
            except Unavailable as error:
                await patience.after(error)
            else:
                return found[0].seq if found[0].commit.id == commit.id else 0

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        stale = self.wire.servers.weather.draw(Fault.STALE)
        what = f"read {subject.split('.', 1)[1]}"
        return await self.wire.request(
            what, lambda: self._fresh(subject, after, lag_s=STALE_S if stale else 0.0)
        )

    def _fresh(self, subject: str, after: int, *, lag_s: float) -> Sequence[Recorded]:
        """Return the commits, without the newest if it is younger than `lag_s`."""
        records = done(self.wire.servers.ports.log.read(subject, after=after))
        seen_s = asyncio.get_running_loop().time() - lag_s
        stored_at_s = self.wire.servers.stored_at_s
        # What whoever is no node has stored, every replica has.
        if records and stored_at_s.get((subject, records[-1].seq), seen_s) > seen_s:
            return records[:-1]
        return records

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        stale = self.wire.servers.weather.draw(Fault.STALE)
        lag_s = STALE_S if stale else 0.0

        def read() -> Mapping[str, Recorded]:
            found = [self._fresh(subject, START, lag_s=lag_s) for subject in subjects]
            return {records[-1].subject: records[-1] for records in found if records}

        return await self.wire.request("newest", read)

    async def last(self, subject: str) -> Recorded | None:
        log = self.wire.servers.ports.log
        return await self.wire.request("last", lambda: done(log.last(subject)))

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        log = self.wire.servers.ports.log
        options = {"after": after, "up_to": up_to, "most": most, "partition": partition}
        return await self.wire.request("page", lambda: done(log.page(stream, **options)))

    async def subjects(self, kind: Kind) -> Sequence[str]:
        log = self.wire.servers.ports.log
        return await self.wire.request("subjects", lambda: done(log.subjects(kind)))

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        log = self.wire.servers.ports.log
        return await self.wire.request("at", lambda: done(log.at(seq, stream, partition=partition)))

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        log = self.wire.servers.ports.log
        return await self.wire.request("head", lambda: done(log.head(stream, partition=partition)))

    @asynccontextmanager
    async def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AsyncIterator[Follower]:
        log = self.wire.servers.ports.log
        async with log.follow(stream, after=after, partition=partition) as follower:
            yield WiredFollower(self.wire, follower)


def _is_of_a_tenure(commit: Commit) -> bool:
    """Return whether `commit` follows the fence of its writer: `<pen>-<n>`, n over 1."""
    _, _, place = commit.id.rpartition("-")
    return place.isdigit() and place != "1"


@dataclass
class WiredFollower:
    """See `streams.ports.log.Follower`."""

    wire: Wire
    follower: Follower

    @property
    def pending(self) -> int:
        return self.follower.pending

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Recorded]:
        records = await self.follower.receive(most=most, wait_s=wait_s)
        await self.wire.life.passage()
        return records


@dataclass
class WiredInbox:
    """See `streams.ports.commands.Inbox`."""

    wire: Wire

    async def send(self, command: Command | WorkflowCommand, *, id: str, trace: str = "") -> None:
        inbox = self.wire.servers.ports.commands
        await self.wire.surely(f"send {id}", lambda: done(inbox.send(command, id=id, trace=trace)))

    async def open(self, actor: str) -> WiredSource[Command | Unreadable]:
        inbox = self.wire.servers.ports.commands
        source = await self.wire.request("open", lambda: done(inbox.open(actor)))
        return WiredSource(self.wire, source)

    async def open_attending(self, actor: str) -> WiredSource[Command | Unreadable]:
        inbox = self.wire.servers.ports.commands
        source = await self.wire.request("open", lambda: done(inbox.open_attending(actor)))
        return WiredSource(self.wire, source)

    async def open_workflow(self, workflow: str) -> WiredSource[WorkflowCommand | Unreadable]:
        inbox = self.wire.servers.ports.commands
        source = await self.wire.request("open", lambda: done(inbox.open_workflow(workflow)))
        return WiredSource(self.wire, source)

    async def backlog(self, actor: str) -> int:
        inbox = self.wire.servers.ports.commands
        return await self.wire.request("backlog", lambda: done(inbox.backlog(actor)))

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        inbox = self.wire.servers.ports.commands
        return await self.wire.request(
            "is waiting", lambda: done(inbox.is_waiting(actor, episode_id))
        )


@dataclass
class WiredFencedWriter:
    """See `streams.ports.domain_events.FencedWriter`. Its events go one by one."""

    wire: Wire
    writer: FencedWriter

    async def publish(self, events: Sequence[Publication]) -> None:
        for event in events:
            what = f"publish {event.name} {event.id}"
            await self.wire.surely(what, partial(self._publish, event))

    def _publish(self, event: Publication) -> None:
        done(self.writer.publish([event]))


@dataclass
class WiredWorld:
    """See `streams.ports.domain_events.World`."""

    wire: Wire

    async def publish(
        self,
        name: str,
        payload: JsonObject,
        *,
        id: str,
        hops: int = 0,
        trace: str = "",
    ) -> int:
        world = self.wire.servers.ports.domain_events
        return await self.wire.surely(
            f"publish {name} {id}",
            lambda: done(world.publish(name, payload, id=id, hops=hops, trace=trace)),
        )

    async def fence(self, name: str, payload: JsonObject, *, id: str) -> WiredFencedWriter:
        world = self.wire.servers.ports.domain_events
        writer = await self.wire.surely(
            f"fence {name} {id}", lambda: done(world.fence(name, payload, id=id))
        )
        return WiredFencedWriter(self.wire, writer)

    async def send(
        self,
        subject: str,
        data: bytes,
        *,
        id: str,
        headers: Mapping[str, str] = NO_HEADERS,
        hops: int = 0,
    ) -> Sent:
        world = self.wire.servers.ports.domain_events
        return await self.wire.request(
            f"send {subject} {id}",
            lambda: done(world.send(subject, data, id=id, headers=headers, hops=hops)),
        )

    async def open(
        self, actor: str, names: Collection[str], *, after: int | None = None
    ) -> WiredSource[DomainEvent | Unreadable]:
        world = self.wire.servers.ports.domain_events
        source = await self.wire.request(
            "open", lambda: done(world.open(actor, names, after=after))
        )
        return WiredSource(self.wire, source)

    async def open_feed(
        self, actor: str, feed: ForeignStream, *, after: int | None = None
    ) -> WiredSource[DomainEvent | Unreadable]:
        world = self.wire.servers.ports.domain_events
        source = await self.wire.request(
            "open", lambda: done(world.open_feed(actor, feed, after=after))
        )
        return WiredSource(self.wire, source)

    async def watched(self, actor: str) -> frozenset[str]:
        world = self.wire.servers.ports.domain_events
        return await self.wire.request("watched", lambda: done(world.watched(actor)))

    async def unwatch(self, actor: str, names: Collection[str]) -> None:
        world = self.wire.servers.ports.domain_events
        await self.wire.request("unwatch", lambda: done(world.unwatch(actor, names)))

    async def backlog(self, actor: str, foreign_streams: Collection[ForeignStream] = ()) -> int:
        world = self.wire.servers.ports.domain_events
        return await self.wire.request(
            "backlog", lambda: done(world.backlog(actor, foreign_streams))
        )

    async def stored(
        self, name: str, *, after: int, up_to: int
    ) -> Sequence[DomainEvent | Unreadable]:
        world = self.wire.servers.ports.domain_events
        return await self.wire.request(
            f"stored {name}", lambda: done(world.stored(name, after=after, up_to=up_to))
        )

    async def republish(self, seq: int, *, id: str) -> int | None:
        world = self.wire.servers.ports.domain_events
        return await self.wire.surely(f"republish {seq}", lambda: done(world.republish(seq, id=id)))


@dataclass
class WiredTimers:
    """See `streams.ports.timers.Timers`."""

    wire: Wire

    async def arm(
        self, timer: Timer, *, at: datetime, expecting: int | None = None, trace: str = ""
    ) -> int:
        timers, armed = self.wire.servers.ports.timers, list[int]()

        def once() -> int:
            """Arm it, however many copies of the request arrive."""
            if not armed:
                armed.append(done(timers.arm(timer, at=at, expecting=expecting, trace=trace)))
                now_s = asyncio.get_running_loop().time()
                self.wire.servers.armed.append(Arming(at_s=now_s, timer=timer, due_at=at))
            return armed[0]

        return await self.wire.surely(f"arm {timer.purpose} {timer.key}", once)

    async def send(self, timer: Timer, *, id: str, trace: str = "") -> None:
        timers = self.wire.servers.ports.timers
        await self.wire.surely(f"say {id}", lambda: done(timers.send(timer, id=id, trace=trace)))

    async def pending(self, actor: str, purpose: str, key: str) -> PendingTimer | None:
        timers = self.wire.servers.ports.timers
        return await self.wire.request(
            f"pending {purpose} {key}", lambda: done(timers.pending(actor, purpose, key))
        )

    async def cancel(
        self, actor: str, purpose: str, key: str, *, expecting: int | None = None
    ) -> None:
        timers = self.wire.servers.ports.timers
        await self.wire.request(
            f"cancel {purpose} {key}",
            lambda: done(timers.cancel(actor, purpose, key, expecting=expecting)),
        )

    async def open(self, actor: str) -> WiredSource[Due | Unreadable]:
        timers = self.wire.servers.ports.timers
        source = await self.wire.request("open", lambda: done(timers.open(actor)))
        return WiredSource(self.wire, source)


@dataclass
class WiredSource(Generic[T]):
    """See `streams.ports.delivery.Source`."""

    wire: Wire
    source: MemorySource[T]

    @property
    def pending(self) -> int:
        return self.source.pending

    async def receive(
        self, *, room: int, wait_s: float, check: Callable[[], None] | None = None
    ) -> Sequence[WiredDelivery[T]]:
        deliveries = await self.source.receive(room=room, wait_s=wait_s, check=check)
        await self.wire.life.passage()
        for delivery in deliveries:
            if self.wire.servers.weather.draw(Fault.REDELIVERED):
                delay_s = self.wire.servers.weather.between(0.0, SLOW_S)
                delivery.durable.hand_back(delivery.seq, delay_s=delay_s)
        return [WiredDelivery(self.wire, delivery) for delivery in deliveries]

    async def position(self) -> QueuePosition:
        return await self.wire.request("position", lambda: done(self.source.position()))

    async def pause(self) -> None:
        await self.source.pause()

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        await self.wire.life.passage()
        await self.wire.strike("hand back", Fault.FROZEN, Fault.DEAD)
        if self.wire.servers.weather.draw(Fault.LOST_NAK):
            return False
        return done(self.source.hand_back(is_whole=is_whole))

    async def close(self) -> None:
        await self.source.close()


@dataclass
class WiredDelivery(Generic[T]):
    """See `streams.ports.delivery.Delivery`."""

    wire: Wire
    delivery: MemoryDelivery[T]

    @property
    def content(self) -> T:
        return self.delivery.content

    @property
    def seq(self) -> int:
        return self.delivery.seq

    @property
    def deliveries(self) -> int:
        return self.delivery.deliveries

    @property
    def nth(self) -> int:
        return self.delivery.nth

    @property
    def at(self) -> datetime:
        return self.delivery.at

    @property
    def trace(self) -> str:
        return self.delivery.trace

    async def ack(self) -> None:
        await self._answer("ack", lambda: done(self.delivery.ack()))

    async def nak(self, *, delay_s: float = 0.0) -> None:
        await self._answer("nak", lambda: done(self.delivery.nak(delay_s=delay_s)))

    async def term(self, reason: str) -> None:
        await self._answer("term", lambda: done(self.delivery.term(reason)))

    async def _answer(self, what: str, effect: Callable[[], None]) -> None:
        """Tell the server, without waiting for it to hear."""
        await self.wire.life.passage()
        await self.wire.strike(what, Fault.FROZEN, Fault.DEAD)
        kind = Fault.LOST_NAK if what == "nak" else Fault.LOST_ACK
        is_lost = self.wire.servers.weather.draw(kind)
        told = f"{what} {self.delivery.durable.stream.name} {self.seq} #{self.deliveries}"
        self.wire.servers.note(self.wire.life.name, told, "lost" if is_lost else "sent")
        if is_lost:
            return
        delay_s = self.wire.servers.weather.between(0, LATENCY_S)
        asyncio.get_running_loop().call_later(delay_s, effect)
        await self.wire.strike(what, Fault.DEAD_AFTER)


@dataclass
class WiredLeases:
    """See `streams.ports.leases.Leases`."""

    wire: Wire
    _renewed: dict[tuple[str, int], Lease] = field(default_factory=dict)
    """What a renewal made of a lease, should its answer get lost."""

    @property
    def ttl_s(self) -> float:
        return self.wire.servers.ports.leases.ttl_s

    async def acquire(self, key: str, *, holder: str, attempt: int = 1) -> Lease | None:
        leases, until_s = self.wire.servers.ports.leases, self._trusted_until_s()
        lease = await self.wire.request(
            f"acquire {key}", lambda: done(leases.acquire(key, holder=holder, attempt=attempt))
        )
        return lease and msgspec.structs.replace(lease, trusted_until_s=until_s)

    async def renew(self, lease: Lease) -> Lease:
        until_s = self._trusted_until_s()
        renewed = await self.wire.request(f"renew {lease.key}", lambda: self._renew(lease))
        return msgspec.structs.replace(renewed, trusted_until_s=until_s)

    async def complete(self, lease: Lease) -> None:
        leases = self.wire.servers.ports.leases
        await self.wire.request(
            f"complete {lease.key}", lambda: done(leases.complete(self._newest(lease)))
        )

    async def fail(self, lease: Lease, *, error: str) -> None:
        leases = self.wire.servers.ports.leases
        await self.wire.request(
            f"fail {lease.key}", lambda: done(leases.fail(self._newest(lease), error=error))
        )

    async def owns(self, lease: Lease) -> bool:
        leases = self.wire.servers.ports.leases
        return await self.wire.request(f"owns {lease.key}", lambda: done(leases.owns(lease)))

    async def standing(self, key: str) -> ClaimChange | None:
        leases = self.wire.servers.ports.leases
        return await self.wire.request(f"standing {key}", lambda: done(leases.standing(key)))

    async def reclaim_expired(self, *, limit: int = RECLAIM_MAX) -> Sequence[ClaimChange]:
        leases = self.wire.servers.ports.leases
        return await self.wire.request(
            "reclaim expired", lambda: done(leases.reclaim_expired(limit=limit))
        )

    async def cut_short(self, *, holder: str) -> Sequence[str]:
        leases = self.wire.servers.ports.leases
        return await self.wire.request("cut short", lambda: done(leases.cut_short(holder=holder)))

    async def mark_lapsed(self, key: str, revision: int) -> None:
        leases = self.wire.servers.ports.leases
        await self.wire.request(f"lapsed {key}", lambda: done(leases.mark_lapsed(key, revision)))

    @asynccontextmanager
    async def watch(self, *, after: int = 0) -> AsyncIterator[ClaimWatch]:
        async with self.wire.servers.ports.leases.watch(after=after) as watch:
            yield WiredWatch(self.wire, watch)

    def _trusted_until_s(self) -> float:
        return self.wire.life.clock.monotonic_s() + self.ttl_s

    def _renew(self, lease: Lease) -> Lease:
        newest = self._newest(lease)
        renewed = done(self.wire.servers.ports.leases.renew(newest))
        self._renewed[lease.key, newest.revision] = renewed
        return renewed

    def _newest(self, lease: Lease) -> Lease:
        while (lease.key, lease.revision) in self._renewed:
            lease = self._renewed[lease.key, lease.revision]
        return lease


@dataclass
class WiredWatch:
    """See `streams.ports.leases.ClaimWatch`."""

    wire: Wire
    watch: ClaimWatch

    async def receive(self, *, most: int, wait_s: float) -> Sequence[ClaimChange]:
        changes = await self.watch.receive(most=most, wait_s=wait_s)
        await self.wire.life.passage()
        return changes


@dataclass
class WiredBucket:
    """See `streams.ports.bucket.Bucket`."""

    wire: Wire
    bucket: MemoryBucket

    async def put(
        self, key: str, value: bytes, *, after: int | None = None, ttl_s: int | None = None
    ) -> int:
        ours: list[int] = []

        def once() -> int:
            ours.append(done(self.bucket.put(key, value, after=after, ttl_s=ttl_s)))
            now_s = asyncio.get_running_loop().time()
            self.wire.servers.kept.append(Kept(at_s=now_s, key=key, value=value))
            return ours[-1]

        try:
            return await self.wire.surely(f"put {key}", once)
        except RevisionConflict:
            found = await self.wire.surely(f"settle {key}", lambda: done(self.bucket.get(key)))
            if found is None or found.revision not in ours:
                raise
            return found.revision

    async def get(self, key: str) -> BucketEntry | None:
        return await self.wire.request(f"get {key}", lambda: done(self.bucket.get(key)))

    async def delete(self, key: str, *, after: int | None = None) -> None:
        await self.wire.surely(f"delete {key}", lambda: done(self.bucket.delete(key, after=after)))

    async def entries(
        self, *, under: str = "", from_leader: bool = False
    ) -> Mapping[str, BucketEntry]:
        return await self.wire.request(
            "entries", lambda: done(self.bucket.entries(under=under, from_leader=from_leader))
        )

    @asynccontextmanager
    async def watch(self, *, under: str = "") -> AsyncIterator[BucketWatch]:
        async with self.bucket.watch(under=under) as watch:
            yield WiredBucketWatch(self.wire, watch)


@dataclass
class WiredBucketWatch:
    """See `streams.ports.bucket.BucketWatch`."""

    wire: Wire
    watch: BucketWatch

    async def receive(self, *, most: int, wait_s: float) -> Sequence[BucketEntry]:
        entries = await self.watch.receive(most=most, wait_s=wait_s)
        await self.wire.life.passage()
        return entries


@dataclass
class WiredObjects:
    """See `streams.ports.objects.ObjectStore`."""

    wire: Wire

    async def put(self, data: bytes, *, about: str = "") -> str:
        objects = self.wire.servers.ports.objects
        return await self.wire.surely("put an object", lambda: done(objects.put(data)))

    async def renew(self, digest: str) -> bool:
        objects = self.wire.servers.ports.objects
        return await self.wire.surely(f"renew {digest}", lambda: done(objects.renew(digest)))

    async def get(self, digest: str) -> bytes | None:
        objects = self.wire.servers.ports.objects
        return await self.wire.request(f"get {digest}", lambda: done(objects.get(digest)))


@dataclass
class WiredStates:
    """See `streams.ports.states.StreamStates`."""

    wire: Wire

    @property
    def parts(self) -> Sequence[str]:
        return self.wire.servers.ports.states.parts

    async def of(self, part: str) -> StreamState | None:
        states = self.wire.servers.ports.states
        return await self.wire.request(f"look at {part}", lambda: done(states.of(part)))

    def newest(self, part: str) -> int:
        return self.wire.servers.ports.states.newest(part)

    async def wait_doubt(self, *, within_s: float) -> bool:
        await self.wire.life.clock.sleep(within_s)
        return False

    def read(self, part: str, *, after: int) -> AbstractAsyncContextManager[RawReader]:
        return self.wire.servers.ports.states.read(part, after=after)

    async def purge(self, part: str, *, below: int) -> int:
        states = self.wire.servers.ports.states
        return await self.wire.request(
            f"purge {part} below {below}", lambda: done(states.purge(part, below=below))
        )


def wired(life: Life, servers: Servers) -> Ports:
    """Return the ports as `life` meets them."""
    wire = Wire(life, servers)
    return Ports(
        stack=servers.ports.stack,
        log=WiredLog(wire),
        commands=WiredInbox(wire),
        leases=WiredLeases(wire),
        domain_events=WiredWorld(wire),
        registry=WiredBucket(wire, servers.ports.registry),
        gates=WiredBucket(wire, servers.ports.gates),
        timers=WiredTimers(wire),
        objects=WiredObjects(wire),
        refusals=servers.ports.refusals,
        deltas=servers.ports.deltas,
        states=WiredStates(wire),
    )
