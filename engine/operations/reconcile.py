"""Does what reconciling found to be due: first what harms nobody, last what could be missed.

    arm        what is declared: it is armed once, whoever does it
    cancel, forget    for good; so only once those who live were looked up again, a moment later
    unwatch, disarm   after one more look, and undone if a node needs it that comes up meanwhile

A node that comes up may have found a timer armed, or its events watched, and be content with that,
before anybody could see it. So after a moment those who live are looked up once more, and whatever
of this they declare is made as it was. That is done, too, if anything else has failed by then.

Has what stands agree with what the nodes that live declare: look → rule → do.

A person or a program sends it out, after a deploy. Doing it again changes nothing more.

It works beside nodes. Each change names what it was decided on, so whatever a node has changed
since is left alone. What stands is looked up first and who lives last, so that a node which comes
up and adds to it is known by then. Who lives is asked of the leader alone: a replica that lags
lacks those that have just come, and all of theirs would be ended. The tidier does what is due.
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
from engine.validation import BY_CHARS_MAX, check_name, check_text
from engine.waits.wait import block_in
from streams.clock import Clock, SystemClock
from streams.errors import RevisionConflict, TimerConflict, UnreadableEvent
from streams.keys import remembered_of
from streams.ports.all import Ports
from streams.ports.timers import PendingTimer, Timer

IN_FLIGHT_MAX: Final = 32
"""Actors looked up, or things done, at a time."""

LOOK_EVERY: Final = 512
"""Things done on one look at who lives."""

SETTLE_S: Final = 1.0
"""How long a node that starts may take from finding its timers armed and its events watched to
being seen, in seconds: all are among the first things that it does, within tens of milliseconds."""

PHASES: Final[tuple[tuple[type[Action], ...], ...]] = (
    (Arm,),
    (CancelBlocked, Forget),
    (Unwatch, Disarm),
)
"""What is done together, in order."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Reconciler:
    """Does what is to be done, once."""

    ports: Ports
    clock: Clock
    by: str
    reason: str
    standing: Sequence[ActualState]
    """What it was found for."""
    now: datetime
    """When that was."""
    _done: set[Action] = field(default_factory=set)
    _taken: dict[Disarm, PendingTimer] = field(default_factory=dict)
    """What was disarmed, or may have been, as it was."""
    _unwatched: set[Unwatch] = field(default_factory=set)

    async def do_all(self, actions: Sequence[Action]) -> list[ReconcileStep]:
        """Do all of `actions` that are still due then, and undo what turns out to be declared.

        Raises:
            StreamError: something could not be done. What had begun beside it is done, what was
                disarmed and is declared is armed again, and all else is left.
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
        """Arm `timer`; return False if one of its name is pending."""
        try:
            await self.ports.timers.arm(timer, at=at, expecting=0)
        except TimerConflict:
            return False
        return True

    async def _cancel(self, action: CancelBlocked) -> bool:
        newest = await self.ports.log.last(self.ports.stack.episode(action.episode_id))
        if block_in(newest) is None:
            return False
        await cancel(self.ports, action.actor_id, action.episode_id, by=self.by, reason=self.reason)
        return True

    async def _forget(self, mark: Mark) -> bool:
        try:
            await self.ports.gates.delete(mark.key, after=mark.revision)
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
        self._taken[timer] = pending
        await timers.cancel(*name, expecting=pending.revision)
        if await timers.pending(*name) is None:
            return True
        del self._taken[timer]  # A node has armed it anew.
        return False

    async def _undo(self) -> AbstractSet[Action]:
        """Arm and watch again what is declared, or may be; return what that is."""
        await self.clock.sleep(SETTLE_S)
        nodes = await self._nodes()
        timers = [each for each in self._taken if _may_be_declared(nodes, each)]
        await each_of(self._put_back, timers)
        needed = await each_of(lambda each: self._watch_again(nodes, each), list(self._unwatched))
        return {*timers, *(each for each in needed if each is not None)}

    async def _put_back(self, timer: Disarm) -> None:
        was = self._taken[timer]
        named = Timer(
            actor=timer.actor_id, purpose=timer.purpose, key=timer.key, payload=was.payload
        )
        await self._arm_new(named, was.due_at)

    async def _watch_again(self, nodes: Sequence[NodeInfo], action: Unwatch) -> Unwatch | None:
        """Have the queue hold what is declared, or may be; return `action` if that undoes it.

        Names that a node has added in the very moment of taking others away may be gone as well.
        """
        known = declared(nodes, action.actor_id)
        wanted = known.events if known else frozenset(action.events)
        missing = wanted - await self.ports.domain_events.watched(action.actor_id)
        if missing:
            source = await self.ports.domain_events.open(action.actor_id, missing)
            await source.close()
        return action if missing.intersection(action.events) else None


async def each_of(do: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Return what `do` makes of each of `items`, so many at a time.

    If it fails for one, that is raised once all that were done beside it have come to an end.
    """
    made: list[R] = []
    for at in range(0, len(items), IN_FLIGHT_MAX):
        batch = [do(each) for each in items[at : at + IN_FLIGHT_MAX]]
        for came in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(came, BaseException):
                raise came
            made.append(came)
    return made


def _may_be_declared(nodes: Sequence[NodeInfo], timer: Disarm) -> bool:
    """Return whether a node declares what `timer` is for, or does not say what it declares."""
    known = declared(nodes, timer.actor_id)
    return known is None or is_declared(known, timer)


ACTIONS_MAX: Final = 10_000
"""Most that is done in one go; how much is left is said."""


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one go."""

    steps: Sequence[ReconcileStep]
    nodes: Sequence[str]
    """Names of those that lived."""
    compared: Sequence[str]
    """The actors whose declaration is known."""
    skipped: Mapping[str, str]
    """The others → why nothing of them was touched."""
    left: int = 0
    """What one go had no room for."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Name of the action → how many were done, or in a dry run would be."""
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
    """Have timers, blocked episodes and what gates remember agree with what live nodes declare.

    Timers of schedules and calm, blocked episodes, cooldowns and breakers of what no node declares
    any more are ended; schedules that a node declares, wakes and has no timer for are armed. Events
    that no node watches any more are taken from the actor's queue. What is queued or runs goes on.
    Nothing is touched of an actor that no node has.

    Blocked episodes are found on the journal, all of it: seconds per million commits.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to `REASON_MAX` characters.
        actors: only these; None: all that a live node has.
        dry_run: only find out what there is to do.
        clock: the machine's by default. Before anything is ended it waits for a second,
            and for two more around timers and events.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    check_text("reason", reason, least=0, most=REASON_MAX)
    for actor in actors or ():
        check_name("actor", actor)
    clock = clock or SystemClock()
    nodes = await live_nodes(ports.gates, from_leader=True)
    wanted = sorted(_actors_of(nodes) if actors is None else set(actors))
    standing = await _standing(ports, [each for each in wanted if declared(nodes, each)])
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
    """Return what stands of each of `actors`."""
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
