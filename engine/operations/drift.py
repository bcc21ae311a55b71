"""Compares the actual state of an actor with what live nodes declare, and plans the repair. Pure.

A deployment changes what nodes declare, but not what was armed or stored before:

    the timer of a schedule that no node declares                   disarm it
    a debounced event of an expectation that is gone                disarm its timer
    a declared schedule without a timer                             arm it, for its next tick
    a blocked episode of an expectation that is gone                cancel it
    a cooldown, a breaker, a last firing or ends of such a one      forget it
    an event in the actor's queue that no node watches              remove it from the queue

Whatever any node declares stays, since old and new nodes run side by side during a rollout. An
actor that no node has, or whose declaration a node leaves out, is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias

import msgspec

from engine.app.triggers import TICK, next_tick, schedule_in, tick_timer_key
from engine.cluster.nodes import ActorInfo, NodeInfo, event_in
from engine.operations.census import OpenWait
from engine.triggers import debounce
from engine.validation import REASON_CHARS_MAX
from streams.keys import expectation_of

ORPHAN_CLEANUP: Final = "orphan_cleanup"

REASON_MAX: Final = REASON_CHARS_MAX - len(f"{ORPHAN_CLEANUP}: ")
"""Longest reason that a person gives, in characters."""

EVENTS_TOLD_MAX: Final = 5
"""Most events that one action shows to people."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What live nodes declare of one actor."""

    schedules: Mapping[str, frozenset[str]]
    """Expectation → the schedules that any of them declares."""
    ticking: Mapping[str, frozenset[str]]
    """The same of those nodes only that open its episodes now."""
    events: frozenset[str]
    """Names of the stack's own events that any of them watches."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A stored cooldown, breaker or last firing, or the latest ends."""

    key: str
    revision: int


class ActualState(msgspec.Struct, frozen=True, kw_only=True):
    """What is armed, stored and blocked of one actor, declared or not."""

    actor: str
    ticks: Sequence[str] = ()
    """Keys of the timers of schedules."""
    calms: Sequence[str] = ()
    """Keys of the timers of debounced events."""
    marks: Sequence[Mark] = ()
    waiting: Sequence[OpenWait] = ()
    watched: frozenset[str] = frozenset()
    """Names of the events that its queue receives."""


class _Action(msgspec.Struct, frozen=True, kw_only=True):
    """A repair of one actor."""

    name: ClassVar[str]
    """The kind of repair, for people."""
    actor_id: str
    expectation_id: str
    """The expectation; empty: all of them."""


class Disarm(_Action, frozen=True, kw_only=True):
    """Cancel a timer."""

    name = "disarm"
    purpose: str
    key: str

    @property
    def about(self) -> str:
        """The schedule, or the debounced subject."""
        return f"{self.purpose} {self.key.partition('/')[2]}"


class Arm(_Action, frozen=True, kw_only=True):
    """Arm a schedule."""

    name = "arm"
    schedule: str
    at: datetime
    """Its next tick."""

    @property
    def about(self) -> str:
        """The schedule and its next tick."""
        return f"{TICK} {self.schedule}, next {self.at.isoformat(timespec='seconds')}"


class CancelBlocked(_Action, frozen=True, kw_only=True):
    """End an episode that nobody can continue."""

    name = "cancel"
    episode_id: str

    @property
    def about(self) -> str:
        """The episode's id."""
        return f"episode {self.episode_id}"


class Forget(_Action, frozen=True, kw_only=True):
    """Remove a stored mark."""

    name = "forget"
    mark: Mark

    @property
    def about(self) -> str:
        """The mark's key."""
        return self.mark.key


class Unwatch(_Action, frozen=True, kw_only=True):
    """Remove events from an actor's queue."""

    name = "unwatch"
    events: tuple[str, ...]

    @property
    def about(self) -> str:
        """Their names, at most `EVENTS_TOLD_MAX`."""
        more = len(self.events) - EVENTS_TOLD_MAX
        told = ", ".join(self.events[:EVENTS_TOLD_MAX])
        return f"stops watching {told}" + (f" and {more:,} more" if more > 0 else "")


Action: TypeAlias = Disarm | Arm | CancelBlocked | Forget | Unwatch

ACTIONS: Final[tuple[type[Action], ...]] = (Disarm, Arm, CancelBlocked, Forget, Unwatch)
"""All of them, in the order of the report."""


class Outcome(StrEnum):
    """What happened to a planned repair."""

    PLANNED = "planned"
    """Nothing: this is a dry run."""
    DONE = "done"
    OVERTAKEN = "overtaken"
    """Somebody changed it meanwhile, so it was left alone."""


class ReconcileStep(msgspec.Struct, frozen=True, kw_only=True):
    """A planned repair and its outcome."""

    action: Action
    outcome: Outcome


def declared(nodes: Iterable[NodeInfo], actor: str) -> Declared | None:
    """Return what `nodes` declare of `actor`; None if it cannot be known, see `why_unknown`."""
    infos = [node.actors[actor] for node in nodes if actor in node.actors]
    if not infos or not all(info.expectations for info in infos):  # guard: private-actor-unknown
        return None
    schedules: dict[str, frozenset[str]] = {}
    ticking: dict[str, frozenset[str]] = {}
    for info in infos:
        for name, each in info.expectations.items():
            # guard: old-declaration-stays
            schedules[name] = schedules.get(name, frozenset()).union(each.schedules)
            if info.wakes:  # guard: unwoken-schedule-not-armed
                ticking[name] = ticking.get(name, frozenset()).union(each.schedules)
    return Declared(schedules=schedules, ticking=ticking, events=_events(infos))


def why_unknown(nodes: Iterable[NodeInfo], actor: str) -> str:
    """Return why the declaration of an actor is unknown; empty if it is known."""
    # An actor has at least one expectation: a node that lists none had no room to list them.
    there = list(nodes)
    having = [node for node in there if actor in node.actors]
    silent = [node.name for node in having if not node.actors[actor].expectations]
    if not having and any(actor in node.closed for node in there):
        return "it is disabled, or no node can make it; what is open goes on"
    if not having:
        return "no node that is up has it"
    return f"node {silent[0]} does not say what it expects: that is too long" if silent else ""


def plan_all(
    nodes: Sequence[NodeInfo], standing: Iterable[ActualState], *, now: datetime
) -> list[Action]:
    """Return the repairs of all actors with a known declaration; see `plan`."""
    return [
        action
        for each in standing
        if (known := declared(nodes, each.actor)) is not None
        for action in plan(known, each, now=now)
    ]


def plan(known: Declared, standing: ActualState, *, now: datetime) -> list[Action]:
    """Return an actor's repairs; `known` must be read after `standing`, the actual state."""
    return [
        *_disarmed(known, standing),
        *_armed(known, standing, now),
        *_canceled(known, standing),
        *_forgotten(known, standing),
        *_unwatched(known, standing),
    ]


def is_declared(known: Declared, timer: Disarm) -> bool:
    """Return whether the purpose of `timer` is declared."""
    expectation, _, rest = timer.key.partition("/")
    if timer.purpose != TICK:
        return expectation in known.schedules
    return rest in known.schedules.get(expectation, ())


def reason_of(reason: str) -> str:
    """Return the reason for canceling episodes, with the reason that a person gave, if any."""
    return f"{ORPHAN_CLEANUP}: {reason}" if reason else ORPHAN_CLEANUP


def _disarmed(known: Declared, standing: ActualState) -> Iterator[Disarm]:
    for purpose, keys in ((TICK, standing.ticks), (debounce.PURPOSE, standing.calms)):
        for key in sorted(keys):
            timer = Disarm(
                actor_id=standing.actor,
                expectation_id=key.partition("/")[0],
                purpose=purpose,
                key=key,
            )
            if not is_declared(known, timer):
                yield timer


def _armed(known: Declared, standing: ActualState, now: datetime) -> Iterator[Arm]:
    ticks = set(standing.ticks)
    for expectation, specs in sorted(known.ticking.items()):
        for spec in sorted(specs):
            schedule = schedule_in(spec)
            if schedule is not None and tick_timer_key(expectation, spec) not in ticks:
                yield Arm(
                    actor_id=standing.actor,
                    expectation_id=expectation,
                    schedule=spec,
                    at=next_tick(schedule, now),
                )


def _canceled(known: Declared, standing: ActualState) -> Iterator[CancelBlocked]:
    for each in standing.waiting:
        if each.expectation_id not in known.schedules:
            yield CancelBlocked(
                actor_id=standing.actor,
                expectation_id=each.expectation_id,
                episode_id=each.episode_id,
            )


def _forgotten(known: Declared, standing: ActualState) -> Iterator[Forget]:
    for mark in standing.marks:
        expectation = expectation_of(mark.key)
        if expectation not in known.schedules:
            yield Forget(actor_id=standing.actor, expectation_id=expectation, mark=mark)


def _unwatched(known: Declared, standing: ActualState) -> Iterator[Unwatch]:
    events = standing.watched - known.events  # guard: watched-events-stay
    if events:
        yield Unwatch(actor_id=standing.actor, expectation_id="", events=tuple(sorted(events)))


def _events(infos: Iterable[ActorInfo]) -> frozenset[str]:
    triggers = (
        text for info in infos for each in info.expectations.values() for text in each.triggers
    )
    return frozenset(name for text in triggers if (name := event_in(text)) is not None)
