"""The scheduler of an actor's lane: collect → decide → commit → carry out → acknowledge.

One node at a time schedules for the whole cluster; others take over when its lease is given up or
lapses. The lease only saves work: of two nodes that both schedule, the version of the lane refuses
one. Input is acknowledged last, so after a crash the next node finds exactly what is left to do;
it reads no events before the dead node's come again, which are older than all others.
Episodes without a place are refused before the commit, because nothing would bring a node back to
them. If the actor is paused, a scheduler that reads no events serves those that wait, unless
another node reads events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from engine import telemetry
from engine.cluster import nodes as cluster_nodes
from engine.cluster.members import Membership
from engine.episodes.breakers.store import Breakers
from engine.episodes.events import OVERFLOW
from engine.execution.parts import ActorParts
from engine.lanes import lane as lane_rules
from engine.lanes.effects import LaneEffects, no_place
from engine.lanes.intake import (
    EPISODES_MAX,
    EventQueues,
    InputBatch,
    InputItem,
    LaneInput,
    Mailbox,
)
from engine.lanes.lane import EMPTY, Lane, LaneInputs, Limits, capacity_of
from engine.lanes.place import RoundDecision, RoundPlanner
from engine.lanes.single_commit import SingleCommitRunner
from engine.lanes.store import LaneStore, read_lane
from engine.runtime.consumer import WAIT_S, Service
from engine.runtime.context import ActorContext
from engine.runtime.leases import BEATS_PER_TTL, Held
from engine.runtime.permits import Permit
from engine.runtime.tasks import wait_first, wait_set
from engine.triggers.evaluate import TriggerEvaluator
from engine.validation import backoff_s
from streams.errors import LeaseLost, Unavailable, UnreadableEvent, VersionConflict
from streams.keys import lane_claim
from streams.model.events import EpisodeOpened
from streams.model.refusals import AgainstLane
from streams.ports.delivery import ACK_WAIT_S

LOOK_S: Final = 5.0
"""Between two looks at what only time changes, in seconds: how late an overdue episode is
canceled."""

UNSETTLED_S: Final = ACK_WAIT_S + WAIT_S
"""How long after the end of a node its deliveries may be unacknowledged, in seconds: its last pull
may outlive it by `WAIT_S`, and what that brings comes again after `ACK_WAIT_S`. With the usual
lease of 30 s, which lapses 20 s after the end of its holder at the earliest, that is over when
another node takes over; with a shorter one, the other node waits for the rest of it."""

STANDBY_S: Final = 5.0
"""Longest wait for the lease before it is asked for again: a watch that was cut off may have missed
that it was given up."""

REDELIVERED_S: Final = ACK_WAIT_S + 1.0
"""How long older events may come again after a delivery was lost, in seconds: all that was not
acknowledged comes again after `ACK_WAIT_S`, and the server's timers may be late."""

OVERTAKEN_MAX: Final = 2
"""Terms, each `REDELIVERED_S` after the one before, that end because others still have some of the
older events. What has not come again by then was handed back with a delay, on purpose."""

LAPSES_AFTER: Final = 1 - 1 / BEATS_PER_TTL
"""The earliest lapse of a lease after the end of its holder, in lives of a lease."""

AGAIN_S: Final = 0.05
"""First pause before the lane is read anew; doubles each time."""

AGAIN_MAX_S: Final = 5.0
"""Longest such pause."""

log = structlog.get_logger("vigil.lanes")


@dataclass
class Term:
    """The time in which a node schedules, from reading the lane to giving way."""

    parts: ActorParts
    evaluator: TriggerEvaluator
    queues: EventQueues
    members: Membership
    takes_causes: bool
    """Whether the actor may be woken. What has been woken goes on in any case."""
    over: asyncio.Event
    """Set when it is to end."""
    check_lease: Callable[[], None]
    """Raises `Unavailable` if the lane may be another node's by now."""
    unsettled_s: float
    """How long others may have unacknowledged events."""
    waits_for_all: bool
    """Whether to read no newer events before all of those have come again."""
    _mailbox: Mailbox = field(default_factory=Mailbox)
    _batch: InputBatch = field(default_factory=InputBatch)
    """What is being decided on."""
    _store: LaneStore = field(init=False)
    _effects: LaneEffects = field(init=False)
    _planner: RoundPlanner = field(init=False)
    _input: LaneInput = field(init=False)

    def __post_init__(self) -> None:
        context, dead_letters = self.parts.context, self.parts.dead_letters
        self.context = context
        self._store = LaneStore(context.ports, context.clock, context.actor.id, context.writer_ids)
        self._effects = LaneEffects(context, self.evaluator.breakers)
        runner = SingleCommitRunner(self.parts, self.evaluator, self.check_lease)
        self._planner = RoundPlanner(self.evaluator, dead_letters, self._effects, runner)
        self._input = LaneInput(
            evaluator=self.evaluator,
            dead_letters=dead_letters,
            effects=self._effects,
            mailbox=self._mailbox,
            over=self.over,
            takes_causes=self.takes_causes,
            check_lease=self.check_lease,
            unsettled_s=self.unsettled_s,
            waits_for_all=self.waits_for_all,
        )

    @property
    def is_overtaken(self) -> bool:
        """Whether newer events came before some that others had: then none of them was read."""
        return self._input.is_overtaken

    async def run(self) -> None:
        """Schedule until it is over. After an error or a group of them, begin a new term."""
        await self._take_over()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._input.take_due())
            beside = [group.create_task(each) for each in self._beside()]
            await self._decide_until_over()
            for each in beside:
                each.cancel()

    async def hand_back(self) -> bool:
        """Hand back at once what was not acknowledged.

        Returns whether all of its events come again before newer ones.
        """
        is_sure = await self._input.hand_back()
        for delivery in (*self._batch.due, *self._mailbox.unanswered()):
            await delivery.nak()
        self._measure(EMPTY)
        return is_sure

    async def _take_over(self) -> None:
        """Read the lane, and complete what the last scheduler may have left undone."""
        context, store = self.context, self._store
        await store.read()
        if store.newest is not None:  # guard: newest-commit-completed
            await self._effects.complete(store.newest, store.lane)
        gone = await self._effects.gone(ticket.episode_id for ticket in store.lane.admitted)
        # guard: new-dispatcher-looks-for-ended
        self._mailbox.put(InputItem(left=each) for each in gone)
        self._make_room()
        log.info(
            "scheduling",
            actor=context.actor.id,
            node=context.node,
            version=store.version,
            waiting=len(store.lane.waiting),
            admitted=len(store.lane.admitted),
        )

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._watch_end()
        yield self._watch_members()
        yield self._watch_time()
        if self.takes_causes:
            if (own := self.queues.own()) is not None:
                yield self._input.take_events(own)
            for foreign in self.queues.foreign:
                yield self._input.take_foreign(foreign)

    async def _decide_until_over(self) -> None:
        while True:
            self._batch = await self._mailbox.take()
            if self.over.is_set():
                return
            await self._decide_on(self._batch)
            self._mailbox.finish(self._batch)
            self._batch = InputBatch()
            self._make_room()

    async def _decide_on(self, batch: InputBatch) -> None:
        before, seen = self._store.lane, LaneInputs(left=batch.left)
        decision = await self._planner.decide(before, batch.asked, self._limits(), seen=seen)
        if decision.events:
            await self._turn_away(decision)
            await self._commit(decision)
            await self._carry_out(decision, before)
        elif batch.deliveries:  # guard: overtaken-dispatcher-silent
            # What changes nothing here may be about a place that another scheduler gave.
            await self._store.check()
        await self._call_again(batch, before)
        for delivery in batch.deliveries:
            await delivery.ack()

    async def _commit(self, decision: RoundDecision) -> None:
        try:
            await self._store.append(decision.events)
        except VersionConflict:
            await self._leave_to_others(decision)
            raise

    async def _turn_away(self, decision: RoundDecision) -> None:
        """Undo and publish, before the commit, what the gates ruled for those without a place."""
        # After the commit nobody comes back to what gets no place. Before, its cause is
        # redelivered, and passes the gates as if for the first time if it then finds room.
        # What a node has opened that is gone may reach the journal after the commit.
        asked = decision.asked
        openings = {id_: each.opened for id_, each in asked.items()}
        for moved in decision.moves:
            dropped = [openings[episode_id] for episode_id in moved.dropped]
            again = [openings[each] for each in moved.dropped if asked[each].is_repeat]
            # guard: dropped-child-told-first
            for each in dropped:
                if each.holds_subject:  # Giving that back would end it for its overlap.
                    await self._effects.tell_parent(each, moved.dropped[each.episode_id])
            # guard: dropped-restores-cooldown
            await asyncio.gather(*(self.evaluator.take_back(each) for each in dropped))
            await self._ask_later(again)  # guard: new-lane-holder-asks-again
            await self._effects.publish_dropped(
                moved.dropped, openings, version=self._store.version
            )

    async def _leave_to_others(self, decision: RoundDecision) -> None:
        # What brought them comes again, here or to the others. If they drop it before the episode
        # is open, it asks for a place later: at once it might overtake what came before it.
        opened = (decision.asked[id_] for id_, is_open in decision.is_open.items() if is_open)
        # guard: opened-in-vain-asks-later
        await self._ask_later(each.opened for each in opened if not each.is_open)

    async def _ask_later(self, openings: Iterable[EpisodeOpened]) -> None:
        await asyncio.gather(*(self.evaluator.builder.ask_later(each) for each in openings))

    async def _carry_out(self, decision: RoundDecision, before: Lane) -> None:
        openings = {id_: each.opened for id_, each in decision.asked.items()}
        traces = {id_: each.trace for id_, each in decision.asked.items() if each.trace}
        self._effects.traces.update(traces)
        for moved in decision.moves:
            await self._effects.carry_out(
                moved, self._store.lane, version=self._store.version, openings=openings
            )
            for episode_id, why in moved.dropped.items():
                self._count_overflow(openings[episode_id].expectation_id)
                if decision.is_open.get(episode_id):
                    await self._effects.cancel(episode_id, no_place(why))
                else:
                    dropped = openings[episode_id]
                    await self._effects.tell_parent(dropped, why)
                    self.evaluator.note_overflow(dropped, self._room_of(self._store.lane))
            for ticket in before.waiting if moved.shed else ():
                if ticket.episode_id in moved.shed:
                    self._count_overflow(ticket.expectation_id)
        self._measure(self._store.lane)

    async def _call_again(self, batch: InputBatch, before: Lane) -> None:
        """Send `Start` again for what asks for a place and has its turn."""
        admitted = {ticket.episode_id for ticket in before.admitted}.difference(batch.left)
        for each in batch.asked:
            if each.is_open and each.opened.episode_id in admitted:
                step = each.wanted.answered_step
                await self._effects.call(
                    each.opened.episode_id, again=str(each.seq), answered_step=step
                )

    def _limits(self) -> Limits:
        actor = self.context.actor
        nodes = [self.members.capacity(actor.id), self._own_room()]
        capacity = capacity_of(cluster_max=actor.max_concurrent_cluster, nodes=nodes)
        return Limits(capacity=capacity, overflow=actor.overflow, queue_max=actor.queue_max)

    def _own_room(self) -> int:
        """Return the room on this node, if the members list lacks it though it is up."""
        # A node that stood still for longer than its presence lasts is missing in the members list,
        # and would see no room at all.
        context = self.context
        is_missed = all(each.name != context.node for each in self.members.nodes)
        return (
            context.actor.max_concurrent_episodes
            if is_missed and context.permits.runs.is_given  # guard: dispatcher-counts-own-room
            else 0
        )

    def _make_room(self) -> None:
        actor, waiting = self.context.actor, len(self._store.lane.waiting)
        stays_in_stream = actor.overflow == "queue"
        self._mailbox.allow(actor.queue_max - waiting if stays_in_stream else EPISODES_MAX)

    async def _watch_members(self) -> None:
        while True:
            await self.members.wait_change()
            self._mailbox.nudge()

    async def _watch_time(self) -> None:
        while True:
            await self.context.clock.sleep(LOOK_S)
            overdue = lane_rules.overdue(self._store.lane, at=self.context.clock.now())
            gone = await self._effects.expire(overdue)  # guard: vain-wait-expires
            self._mailbox.put(InputItem(left=each) for each in gone)
            self._mailbox.nudge()

    async def _watch_end(self) -> None:
        await self.over.wait()
        self._mailbox.nudge()

    def _room_of(self, lane: Lane) -> AgainstLane:
        actor = self.context.actor
        return AgainstLane(
            admitted=len(lane.admitted),
            waiting=len(lane.waiting),
            queue_max=0 if actor.overflow == "drop" else actor.queue_max,
            overflow=actor.overflow,
        )

    def _count_overflow(self, expectation: str) -> None:
        labels = {"actor": self.context.actor.id, "expectation": expectation, "reason": OVERFLOW}
        telemetry.gate_rulings.add(1, labels)

    def _measure(self, lane: Lane) -> None:
        labels = {"actor": self.context.actor.id}
        telemetry.lane.set(len(lane.waiting), {**labels, "state": "waiting"})
        telemetry.lane.set(len(lane.admitted), {**labels, "state": "admitted"})


@dataclass
class LaneScheduler:
    """The scheduler of one actor on one node: it schedules, or stands by."""

    parts: ActorParts
    members: Membership
    takes_causes: bool
    """Whether it takes what wakes the actor. One that does not gives way to one that does."""
    _is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once whatever is published is evaluated, here or elsewhere."""

    def __post_init__(self) -> None:
        self.context = self.parts.context
        self._evaluator = TriggerEvaluator(self.context, self.parts.breakers)
        self._queues = EventQueues(self.context)
        self._key = lane_claim(self.context.actor.id)
        self._withdrawn = self._permit.withdrawn
        self._failures = 0
        self._waits_left = 0
        """Terms that may still end because others have events that are older than new ones."""
        self._settled_s = 0.0
        """Until when others may have unacknowledged events, on the monotonic clock."""

    def service(self) -> Service:
        """Return the service that schedules whenever the node may."""
        return Service(self._run, self._permit, self._is_open)

    async def _run(self) -> None:
        self._withdrawn = self._permit.withdrawn
        await self._unless_withdrawn(self._wait_known())
        if self.takes_causes:
            await self._begin()
        self._is_open.set()
        await self._unless_withdrawn(self._wait_counted())  # guard: own-room-known-first
        while not self._withdrawn.is_set():
            await self._unless_withdrawn(self._wait_needed())
            freed = self.context.leases.freed.of(self._key)
            if not await self._dispatch():
                wait = wait_set(freed, within_s=STANDBY_S, clock=self.context.clock)
                await self._unless_withdrawn(wait)

    @property
    def _permit(self) -> Permit:
        permits = self.context.permits
        return permits.wakes if self.takes_causes else permits.runs

    async def _begin(self) -> None:
        if not self._withdrawn.is_set():
            await self._queues.begin()

    async def _dispatch(self) -> bool:
        """Schedule for as long as this node has the lease; return False if it does not get it."""
        if self._withdrawn.is_set():
            return False
        over, is_understood = asyncio.Event(), True
        held = await self.context.leases.acquire(self._key, on_lost=over.set)
        if held is None:
            return False
        # guard: orderly-end-awaits-nothing
        self._waits_left = OVERTAKEN_MAX if held.lease.stolen else 0
        if held.lease.stolen:  # guard: lost-holder-expects-strays
            self._expect_redeliveries(UNSETTLED_S - self.context.ports.leases.ttl_s * LAPSES_AFTER)
        ending = asyncio.create_task(self._end_when_due(over))
        try:
            while is_understood and not over.is_set():
                is_understood = await self._serve_term(over, held)
            if self._unsettled_s() == 0.0:  # guard: unsettled-lane-lapses
                # Else it lapses, so that the next node, too, knows that it has to wait.
                await self.context.leases.complete(held)
        finally:
            # If it was not given up, this node is cut off or failed unexpectedly: it lapses.
            self.context.leases.forget(held)
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
        return is_understood

    async def _serve_term(self, over: asyncio.Event, held: Held) -> bool:
        """Run one term; return whether this version of the engine understands the lane."""
        failure: BaseException | None = None
        term, began_s = self._term(over, held), self.context.clock.monotonic_s()
        try:
            await term.run()
        except* (VersionConflict, Unavailable, UnreadableEvent) as group:
            failure = _first(group)
        # guard: cut-off-dispatcher-ends
        if (task := asyncio.current_task()) is not None and task.cancelling():
            # A task group drops a cancellation that comes just when one of its tasks fails.
            raise asyncio.CancelledError
        if not await term.hand_back():  # guard: vain-hand-back-may-return
            self._expect_redeliveries(REDELIVERED_S)
            self._waits_left = self._waits_left - 1 if term.is_overtaken else OVERTAKEN_MAX
        if self.context.clock.monotonic_s() - began_s > AGAIN_MAX_S:
            self._failures = 0
        if failure is not None:
            await self._pause_after(failure)
        return not isinstance(failure, UnreadableEvent)

    def _expect_redeliveries(self, within_s: float) -> None:
        """Read no events for a while: older ones may still come again."""
        self._settled_s = max(self._settled_s, self.context.clock.monotonic_s() + within_s)

    def _unsettled_s(self) -> float:
        return max(0.0, self._settled_s - self.context.clock.monotonic_s())

    def _term(self, over: asyncio.Event, held: Held) -> Term:
        def check_lease() -> None:
            try:
                held.lease.check(monotonic_s=self.context.clock.monotonic_s())
            except LeaseLost as error:
                raise Unavailable(self._key, detail=str(error)) from error

        return Term(
            parts=self.parts,
            evaluator=self._evaluator,
            queues=self._queues,
            members=self.members,
            takes_causes=self.takes_causes,
            over=over,
            check_lease=check_lease,
            unsettled_s=self._unsettled_s(),
            waits_for_all=self._waits_left > 0,  # guard: delayed-return-not-awaited
        )

    async def _end_when_due(self, over: asyncio.Event) -> None:
        await self._unless_withdrawn(self._wait_superfluous())
        over.set()

    async def _wait_known(self) -> None:
        await self.members.has_looked.wait()
        while all(each.name != self.context.node for each in self.members.nodes):
            await self.members.wait_change()

    async def _wait_counted(self) -> None:
        """Wait until the members list has this node's room for the actor."""
        # Before this node publishes its room there seems to be none, and what finds none may be
        # dropped.
        while not self._is_counted():
            await self.members.wait_change()

    def _is_counted(self) -> bool:
        own = (each for each in self.members.nodes if each.name == self.context.node)
        return any(self.context.actor.id in {**each.actors, **each.closed} for each in own)

    async def _wait_needed(self) -> None:
        while not self._is_needed():
            await self.members.wait_change()

    async def _wait_superfluous(self) -> None:
        while self._is_needed():
            await self.members.wait_change()

    def _is_needed(self) -> bool:
        # guard: no-causes-gives-way
        return self.takes_causes or not cluster_nodes.is_woken(
            self.members.nodes, self.context.actor.id
        )

    async def _pause_after(self, failure: BaseException) -> None:
        self._failures += 1
        pause_s = backoff_s(self._failures, first_s=AGAIN_S, most_s=AGAIN_MAX_S)
        actor = self.context.actor.id
        log.warning("reading the lane anew", actor=actor, why=str(failure), again_in_s=pause_s)
        await self._unless_withdrawn(self.context.clock.sleep(pause_s))

    async def _unless_withdrawn(self, wait: Coroutine[Any, Any, object]) -> None:
        await wait_first(wait, self._withdrawn.wait())


@dataclass
class LaneCloser:
    """Closes the lane of an actor that no longer has limits: all that wait start at once.

    The gates share the queue that the scheduler has read, so they just go on. A node with another
    version of the actor may schedule meanwhile; this waits for its lease. It reads no events, so
    nodes run it for a paused actor, too: its waiting episodes would be stuck otherwise.
    """

    context: ActorContext
    breakers: Breakers

    async def run(self) -> None:
        """Close the lane unless it is closed, then wait until the permit is withdrawn."""
        withdrawn, leases = self.context.permits.runs.withdrawn, self.context.leases
        key = lane_claim(self.context.actor.id)
        while not withdrawn.is_set() and not await self._is_closed():
            freed = self.context.leases.freed.of(key)
            held = await leases.acquire(key, on_lost=_nothing)
            if held is None:
                wait = wait_set(freed, within_s=STANDBY_S, clock=self.context.clock)
                await wait_first(wait, withdrawn.wait())
                continue
            try:
                await self._close()
            finally:
                await leases.complete(held)
        await withdrawn.wait()

    async def _is_closed(self) -> bool:
        store = await read_lane(self.context)
        lane = store.lane
        if lane.waiting or lane.admitted:  # guard: lane-without-events-drains
            return False
        # The node that closed it may have died before all were called.
        await self._complete(store)
        return True

    async def _close(self) -> None:
        """Give all that wait their turn."""
        store = await read_lane(self.context)
        await self._complete(store)
        try:
            await store.append(lane_rules.closing(store.lane))
        except VersionConflict:
            return
        waited = len(store.lane.waiting)
        await self._complete(await read_lane(self.context))
        log.info("lane closed: its actor has no limits any more", actor=store.actor, waited=waited)

    async def _complete(self, store: LaneStore) -> None:
        if store.newest is not None:
            await LaneEffects(self.context, self.breakers).complete(store.newest, store.lane)


def _nothing() -> None:
    """Do nothing: if the lease is lost, the version of the lane refuses the commit."""


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def services_for(parts: ActorParts, members: Membership) -> list[Service]:
    """Return what schedules one actor's lane; what closes it if its episodes take no turns."""
    context = parts.context
    if not context.is_laned:
        # guard: limitless-lane-drains-paused
        closer = Service(LaneCloser(context, parts.breakers).run, context.permits.runs)
        closer.is_open.set()  # Nothing depends on it.
        return [] if context.is_fallback else [closer]
    going_on = LaneScheduler(parts, members, takes_causes=False).service()
    if context.is_fallback:
        return [going_on]  # guard: openless-lane-gets-turn
    return [LaneScheduler(parts, members, takes_causes=True).service(), going_on]
