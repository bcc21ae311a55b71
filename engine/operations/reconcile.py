"""`reconcile`: makes timers, queues and marks agree with what live nodes declare, after a deploy.

The actual state is read first and the live nodes last, from the leader, so that a node that starts
meanwhile counts. `engine.operations.drift` plans, then the repairs run in this order:

    arm               harmless: a timer is armed once, whichever node does it
    cancel, forget    final, so only after the live nodes were read again, a moment later
    unwatch, disarm   after one more check, and undone if a node that starts meanwhile needs it

A node that starts may find a timer armed, or its events watched, before it is listed. So the live
nodes are read once more afterwards, and what they declare is restored, even after an error. Each
change names the revision that it was decided on, so whatever nodes have changed since stays.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo
from engine.episodes.cancel import cancel
from engine.operations.census import blocked_episodes
from engine.operations.drift import (
    ACTIONS,
    REASON_MAX,
    Action,
    ActualState,
    Arm,
    CancelBlocked,
    Disarm,
    Forget,
    Mark,
    Outcome,
    ReconcileStep,
    Unwatch,
    declared,
    is_declared,
    plan_all,
    reason_of,
    why_unknown,
)
from engine.triggers import debounce, schedule
from engine.triggers.schedule import Tick, tick_timer
from engine.validation import check_cause, check_name
from engine.waits.wait import block_in
from streams.clock import Clock, SystemClock
from streams.errors import RevisionConflict, TimerConflict, UnreadableEvent
from streams.keys import remembered_of
from streams.ports.all import Ports
from streams.ports.timers import PendingTimer, Timer

IN_FLIGHT_MAX: Final = 32
"""Actors read, or repairs made, at a time."""

LOOK_EVERY: Final = 512
"""Repairs per check of the live nodes."""

SETTLE_S: Final = 1.0
"""Longest time between a starting node's check of its timers and events and its first heartbeat, in
seconds; both are among its first actions, tens of milliseconds apart.
"""

# guard: missable-taken-last
PHASES: Final[tuple[tuple[type[Action], ...], ...]] = (
    (Arm,),
    (CancelBlocked, Forget),
    (Unwatch, Disarm),
)
"""Groups of repairs, in order."""

T = TypeVar("T")

R = TypeVar("R")


ACTIONS_MAX: Final = 10_000
"""Most repairs of one run; the rest is reported as left."""


@dataclass
class Reconciler:
    """Makes the planned repairs, once."""

    ports: Ports
    clock: Clock
    by: str
    reason: str
    standing: Sequence[ActualState]
    """The actual state that the plan was made for."""
    now: datetime
    """The time of the plan."""
    _done: set[Action] = field(default_factory=set)
    _taken: dict[Disarm, PendingTimer] = field(default_factory=dict)
    """Timers that were disarmed, or may have been."""
    _unwatched: set[Unwatch] = field(default_factory=set)

    async def do_all(self, actions: Sequence[Action]) -> list[ReconcileStep]:
        """Make all `actions` that are still needed, and undo those that turn out to be wrong.

        If one fails, those that ran beside it are complete, and declared timers are armed again.
        """
        try:
            for kinds in PHASES:
                await self._do_phase([each for each in actions if isinstance(each, kinds)])
        finally:
            if self._taken or self._unwatched:
                self._done -= await self._undo()
        return [ReconcileStep(action=each, outcome=self._outcome(each)) for each in actions]

    async def _do_phase(self, actions: Sequence[Action]) -> None:
        if actions and not isinstance(actions[0], Arm):
            await self.clock.sleep(SETTLE_S)
        for at in range(0, len(actions), LOOK_EVERY):
            due = frozenset(plan_all(await self._nodes(), self.standing, now=self.now))
            # guard: live-nodes-looked-up-again
            await each_of(self._do, [each for each in actions[at : at + LOOK_EVERY] if each in due])

    async def _nodes(self) -> Sequence[NodeInfo]:
        return await live_nodes(self.ports.gates, from_leader=True)

    def _outcome(self, action: Action) -> Outcome:
        return Outcome.DONE if action in self._done else Outcome.OVERTAKEN

    async def _do(self, action: Action) -> None:
        match action:
            case Arm():
                happened = await self._arm(action)
            case CancelBlocked():
                happened = await self._cancel(action)
            case Forget():
                happened = await self._forget(action.mark)
            case Unwatch():
                happened = await self._unwatch(action)
            case Disarm():
                happened = await self._disarm(action)
        if happened:
            self._done.add(action)

    async def _arm(self, action: Arm) -> bool:
        tick = Tick(expectation=action.expectation_id, schedule=action.schedule, at=action.at)
        return await self._arm_new(tick_timer(action.actor_id, tick), action.at)

    async def _arm_new(self, timer: Timer, at: datetime) -> bool:
        try:
            await self.ports.timers.arm(timer, at=at, expecting=0)  # guard: armed-meanwhile-left
        except TimerConflict:
            return False
        return True

    async def _cancel(self, action: CancelBlocked) -> bool:
        newest = await self.ports.log.last(self.ports.stack.episode(action.episode_id))
        if block_in(newest) is None:  # guard: waits-no-more-not-cancelled
            return False
        await cancel(self.ports, action.actor_id, action.episode_id, by=self.by, reason=self.reason)
        return True

    async def _forget(self, mark: Mark) -> bool:
        try:
            await self.ports.gates.delete(mark.key, after=mark.revision)  # guard: renewed-mark-kept
        except RevisionConflict:
            return False
        return True

    async def _unwatch(self, action: Unwatch) -> bool:
        self._unwatched.add(action)
        await self.ports.domain_events.unwatch(action.actor_id, action.events)
        return True

    async def _disarm(self, timer: Disarm) -> bool:
        timers, name = self.ports.timers, (timer.actor_id, timer.purpose, timer.key)
        try:
            pending = await timers.pending(*name)
        except UnreadableEvent:
            return False  # A newer version armed it, and could not be given it back.
        if pending is None:
            return False
        # Noted before: whether it is gone may stay unknown.
        self._taken[timer] = pending  # guard: disarmed-can-be-put-back
        await timers.cancel(*name, expecting=pending.revision)  # guard: disarmed-as-looked-at
        if await timers.pending(*name) is None:
            return True
        del self._taken[timer]  # A node has armed it anew.
        return False

    async def _undo(self) -> AbstractSet[Action]:
        """Arm and watch again what is, or may be, declared; return what was undone."""
        await self.clock.sleep(SETTLE_S)
        nodes = await self._nodes()
        timers = [each for each in self._taken if _may_be_declared(nodes, each)]
        await each_of(self._put_back, timers)  # guard: needed-timer-put-back
        needed = await each_of(lambda each: self._watch_again(nodes, each), list(self._unwatched))
        return {*timers, *(each for each in needed if each is not None)}

    async def _put_back(self, timer: Disarm) -> None:
        was = self._taken[timer]
        named = Timer(
            actor=timer.actor_id, purpose=timer.purpose, key=timer.key, payload=was.payload
        )
        await self._arm_new(named, was.due_at)

    async def _watch_again(self, nodes: Sequence[NodeInfo], action: Unwatch) -> Unwatch | None:
        """Watch again what is, or may be, declared; return `action` if that undoes it."""
        # Names that a node has added at the moment of the removal may have been removed, too.
        known = declared(nodes, action.actor_id)
        wanted = known.events if known else frozenset(action.events)
        missing = wanted - await self.ports.domain_events.watched(action.actor_id)
        if missing:  # guard: needed-events-watched-again
            source = await self.ports.domain_events.open(action.actor_id, missing)
            await source.close()
        return action if missing.intersection(action.events) else None


async def each_of(do: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Return `do` of each item, some at a time; raise an error once its batch has ended."""
    made: list[R] = []
    for at in range(0, len(items), IN_FLIGHT_MAX):
        batch = [do(each) for each in items[at : at + IN_FLIGHT_MAX]]
        # guard: begun-awaited-before-failure
        for came in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(came, BaseException):
                raise came
            made.append(came)
    return made


def _may_be_declared(nodes: Sequence[NodeInfo], timer: Disarm) -> bool:
    known = declared(nodes, timer.actor_id)
    return known is None or is_declared(known, timer)


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run."""

    steps: Sequence[ReconcileStep]
    nodes: Sequence[str]
    """Names of the live nodes."""
    compared: Sequence[str]
    """The actors with a known declaration."""
    skipped: Mapping[str, str]
    """The other actors → why they were not touched."""
    left: int = 0
    """How many repairs are left for another run."""

    @property
    def overtaken(self) -> int:
        """How many others have changed meanwhile."""
        return sum(each.outcome is Outcome.OVERTAKEN for each in self.steps)

    @property
    def counts(self) -> Mapping[str, int]:
        """Kind of repair → how many were made, or would be in a dry run."""
        took = (Outcome.DONE, Outcome.PLANNED)
        found = Counter(each.action.name for each in self.steps if each.outcome in took)
        return {action.name: found[action.name] for action in ACTIONS}


async def reconcile(
    ports: Ports,
    *,
    by: str,
    reason: str = "",
    actors: Collection[str] | None = None,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Reconciled:
    """Make timers, blocked episodes and stored marks agree with what live nodes declare.

    Ends the schedules, debounced events, blocked episodes, cooldowns and breakers that no node
    declares any more; arms declared schedules without a timer; removes events that no node watches
    from the actor's queue. Queued and running episodes continue. Actors that no node has are not
    touched. Finding blocked episodes reads the whole journal: seconds per million commits.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to `REASON_MAX` characters.
        actors: only these; None: all that a live node has.
        dry_run: only report what there is to do.
        clock: waits a second before anything is ended, and two more around timers and events.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    check_cause(by, reason, most=REASON_MAX)
    for actor in actors or ():
        check_name("actor", actor)
    clock = clock or SystemClock()
    nodes = await live_nodes(ports.gates, from_leader=True)
    wanted = sorted(_actors_of(nodes) if actors is None else set(actors))
    standing = await _standing(ports, [each for each in wanted if declared(nodes, each)])
    # guard: live-nodes-from-leader
    nodes, now = await live_nodes(ports.gates, from_leader=True), clock.now()
    actions = plan_all(nodes, standing, now=now)
    chosen = actions[:ACTIONS_MAX]
    reconciler = Reconciler(ports, clock, by, reason_of(reason), standing, now)
    skipped = {actor: why for actor in wanted if (why := why_unknown(nodes, actor))}
    return Reconciled(
        steps=[_planned(each) for each in chosen] if dry_run else await reconciler.do_all(chosen),
        nodes=[node.name for node in nodes],
        compared=[actor for actor in wanted if actor not in skipped],
        skipped=skipped,
        left=len(actions) - len(chosen),
    )


async def _standing(ports: Ports, actors: Sequence[str]) -> list[ActualState]:
    if not actors:
        return []
    waiting = await blocked_episodes(ports, actors)

    async def one(actor: str) -> ActualState:
        entries = [await ports.gates.entries(under=each) for each in remembered_of(actor)]
        return ActualState(
            actor=actor,
            ticks=await ports.timers.keys(actor, schedule.PURPOSE),
            calms=await ports.timers.keys(actor, debounce.PURPOSE),
            marks=[
                Mark(key=key, revision=entry.revision)
                for each in entries
                for key, entry in sorted(each.items())
            ],
            waiting=[each for each in waiting if each.actor_id == actor],
            watched=await ports.domain_events.watched(actor),
        )

    return await each_of(one, actors)


def _planned(action: Action) -> ReconcileStep:
    return ReconcileStep(action=action, outcome=Outcome.PLANNED)


def _actors_of(nodes: Iterable[NodeInfo]) -> set[str]:
    return {actor for node in nodes for actor in node.actors}
