"""Carries out what follows from the commits of a stack: follow, derive, publish and send, note.

stand by ──lead──▶ follow ──overtaken──▶ stand by
                    │  ▲
       no server    ▼  │  tried again, ever more slowly
                   wait

One node at a time, the leader, does it for each stream of the journal. A key in the gates names
it; once the entry of that node has lapsed, another one leads. The fence in the stream of events
makes sure that no former one publishes. What was published before the position was noted is
published again by the next one, under the same ids, which the stream drops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from engine import telemetry
from engine.cluster.members import presence_s
from engine.episodes.latest_ends import CountEnd
from engine.orders.store import follow_order
from engine.reactor.count_ends import count_ends
from engine.reactor.cover_watch import CoverWatcher
from engine.reactor.follow_up import FollowOrder, SendCommand, Sending, SendTimer
from engine.reactor.leader import Leader, Leadership, is_alive, leader_of
from engine.reactor.position import NOTE_S, Position, is_lost
from engine.reactor.states import AggregateStates
from engine.runtime.leases import LeaseEvents
from engine.runtime.overdue import Overdue
from engine.runtime.publish import PublicEvent
from engine.runtime.tasks import wait_first, wait_set
from engine.runtime.watch import follow
from engine.validation import backoff_s
from streams.clock import Clock, us_of
from streams.errors import (
    RevisionConflict,
    StreamError,
    TooLarge,
    Unavailable,
    UnreadableEvent,
    VersionConflict,
)
from streams.keys import NODES, node_key, started_event
from streams.layout import FOLLOWED, Stream
from streams.model.losses import GATES, Lack, LogLost, Loss, ends_early, may_catch_up
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry
from streams.ports.domain_events import FencedWriter, Publication
from streams.ports.log import Follower, Recorded
from streams.subjects import Stack
from streams.wire.messages import event_body

GIVE_UP_S: Final = 1.0
"""Longest that letting others lead may take; else they see that its node is gone, or look."""

COMMITS_MAX: Final = 256
"""Commits that are followed up together."""

STANDBY_S: Final = 15.0
"""Longest wait before a standby looks again: a leader that cannot go on gives up, too."""

SILENT_S: Final = 5.0
"""Longest silent wait for commits; only how often an idle reactor wakes."""

DELAY_S_MIN: Final = 0.1
DELAY_S_MAX: Final = 5.0
"""Wait after a failure, in seconds: doubled for each one in a row."""

STUCK_S: Final = 30.0
"""Wait before looking again at what only another version can read."""

log = structlog.get_logger("vigil.reactor")


def followed(stack: Stack) -> Sequence[tuple[Stream, int]]:
    """Return the streams, and their partitions, whose commits something follows from."""
    return [(stream, each) for stream in FOLLOWED for each in stack.partitions_of(stream)]


async def watch_nodes(
    gates: Bucket,
    gone: LeaseEvents,
    overdue: Overdue,
    *,
    hear_all: Callable[[Sequence[BucketEntry]], None],
) -> None:
    """Note in `gone` which nodes stop or die: one watch for all reactors of a node.

    `overdue` is told of everything that nodes say of themselves, and `hear_all` called with it.
    """

    async def hear(entries: Sequence[BucketEntry]) -> None:
        hear_all(entries)
        for each in entries:
            # guard: presence-told-to-overdue
            overdue.note(each.key, each.revision, life_s=presence_s(each))
            if each.value is None:
                gone.free(each.key)  # guard: standby-sees-leader-gone

    await follow(gates.watch(under=NODES), hear)


@dataclass
class Reactor:
    """Publishes what follows from one stream of the journal while its node is the leader."""

    ports: Ports
    clock: Clock
    node: str
    since: datetime
    """When the node was started, as its entry says."""
    stream: Stream = Stream.JOURNAL
    partition: int = 0
    gone: LeaseEvents = field(default_factory=LeaseEvents)
    """Nodes that went, as `watch_nodes` sees it; without it a standby only looks now and then."""
    freed: LeaseEvents = field(default_factory=LeaseEvents)
    """Leases that ended; without it a leader only looks now and then."""
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _failures: int = 0

    def end(self) -> None:
        """Publish what there is by now, let others lead, and let `follow` return."""
        self._ending.set()

    async def follow(self) -> None:
        """Lead or stand by until `end`, at least once.

        Raises `LogLost` if the stream ends before the position up to which it was followed, or if
        that position is lost.
        """
        is_first = True
        while is_first or not self._ending.is_set():
            is_first = False
            try:
                await self._lead()
            except UnreadableEvent as error:
                log.warning("cannot go on", stream=self._part, error=str(error))
                await self._pause(STUCK_S)
            except Unavailable as error:
                self._failures += 1
                pause_s = backoff_s(self._failures, first_s=DELAY_S_MIN, most_s=DELAY_S_MAX)
                if self._failures == 1:
                    log.warning("cannot publish", stream=self._part, error=str(error))
                await self._pause(pause_s)

    @property
    def _part(self) -> str:
        return self.ports.stack.part(self.stream, self.partition)

    async def _lead(self) -> None:
        """Lead if no other leader lives; else wait until that may have changed."""
        gates = self.ports.gates
        leader, revision = await leader_of(gates, self._part)
        if leader is not None and leader != self._myself:
            went = self.gone.of(node_key(leader.node))
            if await is_alive(gates, leader):  # guard: one-leading-reactor
                wait = wait_set(went, within_s=STANDBY_S, clock=self.clock)
                return await wait_first(wait, self._ending.wait())
        leadership = Leadership(gates, self._part, self._myself)
        if not await leadership.take(after=revision):
            return None
        try:
            await self._publish_all()
        except (RevisionConflict, VersionConflict) as error:
            log.warning("standing by", stream=self._part, node=self.node, why=str(error))
        finally:
            with suppress(Unavailable, RevisionConflict, TimeoutError):
                async with self.clock.timeout(GIVE_UP_S):
                    await leadership.give_up()  # guard: stuck-leader-yields

    @property
    def _myself(self) -> Leader:
        return Leader(self.node, self.since)

    async def _publish_all(self) -> None:
        """Publish what follows from each commit, until `end` and nothing is left."""
        position = await Position.read(self.ports, self._part)
        state = await self.ports.states.of(self._part)
        # guard: loss-reactor-not-anew
        if (loss := ends_early(self._part, position.seq, state)) is not None:
            if may_catch_up(loss, state):  # guard: loss-reactor-waits
                raise Unavailable(f"stream {self._part}", detail=f"its leader says it {loss.words}")
            raise LogLost(self.ports.stack.name, [loss])
        # From the beginning, all would be published twice.
        # guard: lost-position-stops-stack
        if position.is_missing and await is_lost(self.ports, self._part):
            raise LogLost(self.ports.stack.name, [Loss(part=GATES, lack=Lack.FORGOTTEN)])
        await position.write_first()  # guard: position-written-before-fence
        writer = LazyWriter(
            self.ports, self._part, node=self.node, clock=self.clock, position=position
        )
        if not self._failures:
            log.info("publishing", stream=self._part, node=self.node, after=position.seq)
        covers = CoverWatcher(self.ports, self.clock, self.freed)
        # guard: new-leader-reads-covered
        await covers.read(
            self.stream, self.partition, first=position.covered_from, up_to=position.seq
        )
        follow = partial(
            self._follow,
            position=position,
            states=AggregateStates(self.ports, self.clock),
            covers=covers,
            writer=writer,
        )
        ending = asyncio.create_task(self._ending.wait())
        try:
            await wait_first(follow(ending), covers.watch())
        finally:
            ending.cancel()
        # What was received last may have been taken, and not followed up: it is received again.
        end = await self.ports.log.head(self.stream, partition=self.partition)
        await follow(end)  # guard: stopping-reactor-finishes
        await position.write(self.clock.monotonic_s())

    async def _follow(
        self,
        until: int | asyncio.Task[Any],
        *,
        position: Position,
        states: AggregateStates,
        covers: CoverWatcher,
        writer: FencedWriter,
    ) -> None:
        """Publish what follows from each commit up to a sequence, or until a task is done."""
        labels = {"stream": self._part}
        after, partition = position.seq, self.partition
        async with self.ports.log.follow(self.stream, after=after, partition=partition) as follower:
            while position.seq < until if isinstance(until, int) else not until.done():
                records = await self._receive(follower, position, until)
                if records:
                    await self._follow_up(records, position, states, covers, writer)
                else:  # A look may have found that what was covered has claims by now.
                    position.covered_from = covers.covered.first_seq
                self._failures = 0
                telemetry.reactor_lag.set(follower.pending, labels)
                if position.is_due(self.clock.monotonic_s(), is_idle=not records):
                    await position.write(self.clock.monotonic_s())

    async def _follow_up(
        self,
        records: Sequence[Recorded],
        position: Position,
        states: AggregateStates,
        covers: CoverWatcher,
        writer: FencedWriter,
    ) -> None:
        """Carry out what follows from `records`, or from those before one that cannot be read."""
        derived = await derive(records, states)
        effects = derived.effects
        if derived.ends:
            gates, published = self.ports.gates, position.written.seq
            changes = await count_ends(gates, derived.ends, part=self._part, published=published)
            effects = [*effects, *changes]
        await carry_out(effects, writer, self.ports, part=position.part)
        covers.note(records[: derived.done])
        position.covered_from = covers.covered.first_seq  # guard: covered-noted-with-position
        if derived.failure is not None:
            position.seq = records[derived.done].seq - 1
            await position.write(self.clock.monotonic_s())
            raise derived.failure
        position.seq = records[-1].seq  # guard: followed-up-noted

    async def _receive(
        self, follower: Follower, position: Position, until: int | asyncio.Task[Any]
    ) -> Sequence[Recorded]:
        """Return the next commits; none after a silence, or once a task `until` is done."""
        if isinstance(until, int):
            return await follower.receive(most=COMMITS_MAX, wait_s=NOTE_S)
        wait_s = SILENT_S if position.is_written else NOTE_S
        receiving = asyncio.create_task(_received(follower, wait_s))
        try:
            await asyncio.wait({receiving, until}, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else ()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _pause(self, pause_s: float) -> None:
        await wait_first(self.clock.sleep(pause_s), self._ending.wait())


@dataclass
class LazyWriter:
    """See `FencedWriter`. The fence is published with the first events: an idle node needs none."""

    ports: Ports
    part: str
    node: str
    clock: Clock
    position: Position
    _writer: FencedWriter | None = None

    async def publish(self, events: Sequence[Publication]) -> None:
        """See `FencedWriter.publish`."""
        if self._writer is None:
            at_us = us_of(self.clock.now())
            self._writer = await self.ports.domain_events.fence(
                started_event(self.part),
                {"node": self.node, "stream": self.part},
                id=f"reactor.{self.part}.{self.node}.{at_us:x}",
            )
            # Since the position was read, another one may have led.
            await self.position.check()
        await self._writer.publish(events)


async def _received(follower: Follower, wait_s: float) -> Sequence[Recorded]:
    return await follower.receive(most=COMMITS_MAX, wait_s=wait_s)


class Derived(NamedTuple):
    """What follows from the first `done` of some commits, each with its trace."""

    effects: Sequence[tuple[Sending, str]]
    ends: Sequence[tuple[CountEnd, str]]
    done: int
    failure: StreamError | None
    """Why nothing can be said of the next one; None: there is none."""


async def derive(records: Sequence[Recorded], states: AggregateStates) -> Derived:
    """Return what follows from `records`, up to the first of which that cannot be said."""
    effects: list[tuple[Sending, str]] = []
    ends: list[tuple[CountEnd, str]] = []
    for done, record in enumerate(records):
        try:
            found = await states.effects_of(record)
        except (Unavailable, UnreadableEvent) as error:
            return Derived(effects, ends, done, error)
        for effect in found:
            if isinstance(effect, CountEnd):
                ends.append((effect, record.commit.trace))
            else:
                effects.append((effect, record.commit.trace))
    return Derived(effects, ends, len(records), None)


async def carry_out(
    effects: Sequence[tuple[Sending, str]], writer: FencedWriter, ports: Ports, *, part: str
) -> None:
    """Publish public events of the stream `part`, in order, and send the rest."""
    publications: list[Publication] = []
    sends: list[Callable[[], Awaitable[None]]] = []
    for effect, trace in effects:
        if isinstance(effect, SendCommand):
            sends.append(partial(ports.commands.send, effect.command, id=effect.id, trace=trace))
        elif isinstance(effect, SendTimer):
            sends.append(partial(ports.timers.send, effect.timer, id=effect.id, trace=trace))
        elif isinstance(effect, FollowOrder):
            sends.append(partial(_follow_order, ports, effect.key))
        elif (encoded := encode(effect, trace=trace, part=part)) is not None:
            publications.append(encoded)
    if publications:  # guard: commit-leaves-no-event-out
        await publish(publications, writer)
    await asyncio.gather(*(send() for send in sends))
    telemetry.reactor_effects.add(len(publications) + len(sends))


async def _follow_order(ports: Ports, key: str) -> None:
    await follow_order(ports, key)


async def publish(publications: Sequence[Publication], writer: FencedWriter) -> None:
    """Publish in order; leave out what is over the server's own limit, and log it."""
    try:
        await writer.publish(publications)
    except TooLarge:
        for each in publications:
            try:
                await writer.publish([each])
            except TooLarge as error:
                log.warning("an event is too large to be published", id=each.id, error=str(error))


def encode(event: PublicEvent, *, trace: str, part: str) -> Publication | None:
    """Return an event as it is published; None: it is too large, which is logged.

    It says which commit of the stream `part` it follows from: where the position is lost, it is
    found again by the newest event.
    """
    try:
        data = event_body(event.name, event.payload)
    except TooLarge as error:
        log.warning("an event is too large to be published", id=event.id, error=str(error))
        return None
    return Publication(
        name=event.name,
        data=data,
        id=event.id,
        hops=event.hops,
        trace=trace,
        follows=f"{part}/{event.payload['journal_seq']}",
    )
