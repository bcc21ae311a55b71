"""What stands of an actor that no node declares any more, and what is to be done about it. Pure.

A deploy changes what nodes declare; what was armed, kept or asked before stands as it did:

    the timer of a schedule that no node declares            disarm it
    an event that waits for calm, of an expectation that is gone    disarm its timer
    a schedule that a node declares and that has no timer    arm it, for its next tick
    an episode that is blocked, of an expectation that is gone      cancel it
    a cooldown, a breaker, what fired last, of such a one    forget it
    an event in the actor's queue that no node watches       have it watch that no more

Whatever any node declares stays, for old and new ones live side by side while a deploy rolls. What
is said about an actor that no node has, or that a node keeps to itself, is nothing to go by.
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
"""Why an episode is canceled whose expectation is gone."""

REASON_MAX: Final = REASON_CHARS_MAX - len(f"{ORPHAN_CLEANUP}: ")
"""Longest reason of a person's, in characters."""

EVENTS_TOLD_MAX: Final = 5
"""Most events that an action names to people."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes that live expect of one actor."""

    schedules: Mapping[str, frozenset[str]]
    """Expectation → the schedules that any of them declares."""
    ticking: Mapping[str, frozenset[str]]
    """The same of those nodes only that wake the actor now."""
    events: frozenset[str]
    """Names of the stack's own events that any of them watches."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that gates remember."""

    key: str
    revision: int


class ActualState(msgspec.Struct, frozen=True, kw_only=True):
    """What is armed, kept and waits of one actor, whoever declared it."""

    actor: str
    ticks: Sequence[str] = ()
    """Keys of the timers of schedules."""
    calms: Sequence[str] = ()
    """Keys of the timers of events that wait for calm."""
    marks: Sequence[Mark] = ()
    waiting: Sequence[OpenWait] = ()
    watched: frozenset[str] = frozenset()
    """Names of the events that its queue is for."""


class _Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do about an actor."""

    name: ClassVar[str]
    """In one word."""
    actor_id: str
    expectation_id: str
    """Which one it is about; empty: all of them."""


class Disarm(_Action, frozen=True, kw_only=True):
    """Have a timer not fire."""

    name = "disarm"
    purpose: str
    key: str

    @property
    def about(self) -> str:
        """Which one, in words: the schedule, or the subject that was to be calm."""
        return f"{self.purpose} {self.key.partition('/')[2]}"


class Arm(_Action, frozen=True, kw_only=True):
    """Have a schedule tick."""

    name = "arm"
    schedule: str
    at: datetime
    """Its next tick."""

    @property
    def about(self) -> str:
        """Which one, and when it ticks next."""
        return f"{TICK} {self.schedule}, next {self.at.isoformat(timespec='seconds')}"


class CancelBlocked(_Action, frozen=True, kw_only=True):
    """End an episode that nobody could go on with."""

    name = "cancel"
    episode_id: str

    @property
    def about(self) -> str:
        """Which one."""
        return f"episode {self.episode_id}"


class Forget(_Action, frozen=True, kw_only=True):
    """Remove what gates remember."""

    name = "forget"
    mark: Mark

    @property
    def about(self) -> str:
        """Its key."""
        return self.mark.key


class Unwatch(_Action, frozen=True, kw_only=True):
    """Have an actor's queue hold certain events no more."""

    name = "unwatch"
    events: tuple[str, ...]

    @property
    def about(self) -> str:
        """Their names, the first of many."""
        more = len(self.events) - EVENTS_TOLD_MAX
        told = ", ".join(self.events[:EVENTS_TOLD_MAX])
        return f"stops watching {told}" + (f" and {more:,} more" if more > 0 else "")


Action: TypeAlias = Disarm | Arm | CancelBlocked | Forget | Unwatch

ACTIONS: Final[tuple[type[Action], ...]] = (Disarm, Arm, CancelBlocked, Forget, Unwatch)
"""All of them, in the order in which they are told of."""


class Outcome(StrEnum):
    """What came of something that was to be done."""

    PLANNED = "planned"
    """It was not asked for: a dry run."""
    DONE = "done"
    OVERTAKEN = "overtaken"
    """Somebody has changed it meanwhile, so it was left to them."""


class ReconcileStep(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was to be done."""

    action: Action
    outcome: Outcome


def declared(nodes: Iterable[NodeInfo], actor: str) -> Declared | None:
    """Return what `nodes` expect of `actor`; None if that cannot be known, see `why_unknown`."""
    infos = [node.actors[actor] for node in nodes if actor in node.actors]
    if not infos or not all(info.expectations for info in infos):
        return None
    schedules: dict[str, frozenset[str]] = {}
    ticking: dict[str, frozenset[str]] = {}
    for info in infos:
        for name, each in info.expectations.items():
            schedules[name] = schedules.get(name, frozenset()).union(each.schedules)
            if info.wakes:
                ticking[name] = ticking.get(name, frozenset()).union(each.schedules)
    return Declared(schedules=schedules, ticking=ticking, events=_events(infos))


def why_unknown(nodes: Iterable[NodeInfo], actor: str) -> str:
    """Return why nobody knows what is expected of `actor`, in words; empty if that is known.

    An actor has an expectation at least: a node that says of none had too much to say.
    """
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
    """Return what is to be done about all actors of which is known what is expected; see `plan`."""
    return [
        action
        for each in standing
        if (known := declared(nodes, each.actor)) is not None
        for action in plan(known, each, now=now)
    ]


def plan(known: Declared, standing: ActualState, *, now: datetime) -> list[Action]:
    """Return what is to be done about an actor so that what stands is what is declared.

    Args:
        known: what the nodes that live declare; read after what stands was.
        now: from when on a schedule that has no timer ticks.
    """
    return [
        *_disarmed(known, standing),
        *_armed(known, standing, now),
        *_canceled(known, standing),
        *_forgotten(known, standing),
        *_unwatched(known, standing),
    ]


def is_declared(known: Declared, timer: Disarm) -> bool:
    """Return whether what `timer` is for is declared."""
    expectation, _, rest = timer.key.partition("/")
    if timer.purpose != TICK:
        return expectation in known.schedules
    return rest in known.schedules.get(expectation, ())


def reason_of(reason: str) -> str:
    """Return why episodes are canceled, given why a person wanted all this; that may be empty."""
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
    """Yield what is to tick, but for what a newer version alone can read."""
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
    events = standing.watched - known.events
    if events:
        yield Unwatch(actor_id=standing.actor, expectation_id="", events=tuple(sorted(events)))


def _events(infos: Iterable[ActorInfo]) -> frozenset[str]:
    triggers = (
        text for info in infos for each in info.expectations.values() for text in each.triggers
    )
    return frozenset(name for text in triggers if (name := event_in(text)) is not None)
