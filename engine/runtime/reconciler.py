"""Has what stands agree with what the nodes that live declare: look → rule → do → look again.

A person or a program sends it out, after a deploy. Doing it again changes nothing more.

It works beside nodes. Each change names what it was decided on, so whatever a node has changed
since is left alone. What stands is looked up first and who lives last, so that a node which comes
up and adds to it is known by then. One that came up in between may have found a timer armed and
be content with that; so after a moment those who live are looked up once more, and what was
disarmed and is declared now is armed again, as it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from engine import calm
from engine.blocking import block_in
from engine.fields import BY_CHARS_MAX, check_name, check_text
from engine.nodes import NodeInfo
from engine.reconciling import (
    ACTIONS,
    REASON_MAX,
    Action,
    Arm,
    CancelBlocked,
    Disarm,
    Forget,
    Mark,
    Standing,
    declared,
    is_declared,
    plan,
    reason_of,
    why_unknown,
)
from engine.runtime import ticker
from engine.runtime.census import blocked_episodes
from engine.runtime.presence import live_nodes
from engine.runtime.requester import cancel
from engine.runtime.ticker import Tick, tick_timer
from streams.clock import Clock, SystemClock
from streams.errors import RevisionConflict, TimerConflict, UnreadableEvent
from streams.keys import remembered_of
from streams.ports import Ports
from streams.timers import PendingTimer, Timer

ACTIONS_MAX: Final = 10_000
"""Most that is done in one go; how much is left is said."""

IN_FLIGHT_MAX: Final = 32
"""Actors looked up, or things done, at a time."""

SETTLE_S: Final = 1.0
"""How long a node that starts may take from finding its timers armed to being seen, in seconds:
both are among the first things that it does, within tens of milliseconds."""


T = TypeVar("T")
R = TypeVar("R")


class Outcome(StrEnum):
    """What came of something that was to be done."""

    PLANNED = "planned"
    """It was not asked for: a dry run."""
    DONE = "done"
    OVERTAKEN = "overtaken"
    """Somebody has changed it meanwhile, so it was left to them."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was to be done."""

    action: Action
    outcome: Outcome


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one go."""

    steps: Sequence[Step]
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
    any more are ended; schedules that a node declares, wakes and has no timer for are armed. What
    is queued or runs goes on. Nothing is touched of an actor that no node has.

    Blocked episodes are found on the journal, all of it: seconds per million commits.

    Args:
        ports: of the stack.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to `REASON_MAX` characters.
        actors: only these; None: all that a live node has.
        dry_run: only find out what there is to do.
        clock: the machine's by default. If anything was disarmed, it waits for `SETTLE_S`.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        UnreadableEvent: a newer version of the engine has written to the journal.
        Unavailable: no answer, or the server refused. Reconciling again is safe.
    """
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    check_text("reason", reason, least=0, most=REASON_MAX)
    for actor in actors or ():
        check_name("actor", actor)
    clock = clock or SystemClock()
    before = await live_nodes(ports.gates)
    wanted = sorted(_actors_of(before) if actors is None else set(actors))
    standing = await _standing(ports, [each for each in wanted if declared(before, each)])
    nodes = await live_nodes(ports.gates)
    skipped = {actor: why for actor in wanted if (why := why_unknown(nodes, actor))}
    actions = [
        action
        for each in standing
        if (known := declared(nodes, each.actor)) is not None
        for action in plan(known, each, now=clock.now())
    ]
    hands = _Hands(ports, clock, by, reason_of(reason))
    chosen = actions[:ACTIONS_MAX]
    return Reconciled(
        steps=[_planned(each) for each in chosen] if dry_run else await hands.do_all(chosen),
        nodes=[node.name for node in nodes],
        compared=[actor for actor in wanted if actor not in skipped],
        skipped=skipped,
        left=len(actions) - len(chosen),
    )


@dataclass
class _Hands:
    """Who does what is to be done."""

    ports: Ports
    clock: Clock
    by: str
    reason: str
    _taken: dict[Disarm, PendingTimer] = field(default_factory=dict)
    """What was disarmed, as it was."""

    async def do_all(self, actions: Sequence[Action]) -> list[Step]:
        """Do all of `actions`, and undo what turns out to be declared."""
        outcomes = await _each(self._do, actions)
        again = await self._put_back() if self._taken else frozenset()
        return [
            Step(action=action, outcome=Outcome.OVERTAKEN if action in again else outcome)
            for action, outcome in zip(actions, outcomes, strict=True)
        ]

    async def _do(self, action: Action) -> Outcome:
        match action:
            case Disarm():
                happened = await self._disarm(action)
            case Arm():
                happened = await self._arm(action)
            case CancelBlocked():
                happened = await self._cancel(action)
            case Forget():
                happened = await self._forget(action.mark)
        return Outcome.DONE if happened else Outcome.OVERTAKEN

    async def _disarm(self, timer: Disarm) -> bool:
        timers, name = self.ports.timers, (timer.actor_id, timer.purpose, timer.key)
        try:
            pending = await timers.pending(*name)
        except UnreadableEvent:
            return False  # A newer version armed it, and could not be given it back.
        if pending is None:
            return False
        await timers.cancel(*name, expecting=pending.revision)
        if await timers.pending(*name) is not None:
            return False  # A node has armed it anew.
        self._taken[timer] = pending
        return True

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

    async def _put_back(self) -> frozenset[Disarm]:
        """Arm again what was disarmed and is declared, or may be; return what that is."""
        await self.clock.sleep(SETTLE_S)
        nodes = await live_nodes(self.ports.gates)
        wanted = [timer for timer in self._taken if _may_be_declared(nodes, timer)]
        for timer in wanted:
            was = self._taken[timer]
            named = Timer(
                actor=timer.actor_id, purpose=timer.purpose, key=timer.key, payload=was.payload
            )
            await self._arm_new(named, was.due_at)
        return frozenset(wanted)


async def _standing(ports: Ports, actors: Sequence[str]) -> list[Standing]:
    """Return what stands of each of `actors`."""
    if not actors:
        return []
    waiting = await blocked_episodes(ports, actors)

    async def one(actor: str) -> Standing:
        entries = [await ports.gates.entries(under=each) for each in remembered_of(actor)]
        return Standing(
            actor=actor,
            ticks=await ports.timers.keys(actor, ticker.PURPOSE),
            calms=await ports.timers.keys(actor, calm.PURPOSE),
            marks=[
                Mark(key=key, revision=entry.revision)
                for each in entries
                for key, entry in sorted(each.items())
            ],
            waiting=[each for each in waiting if each.actor_id == actor],
        )

    return await _each(one, actors)


async def _each(do: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Return what `do` makes of each of `items`, so many at a time."""
    made: list[R] = []
    for at in range(0, len(items), IN_FLIGHT_MAX):
        made += await asyncio.gather(*(do(each) for each in items[at : at + IN_FLIGHT_MAX]))
    return made


def _planned(action: Action) -> Step:
    return Step(action=action, outcome=Outcome.PLANNED)


def _actors_of(nodes: Iterable[NodeInfo]) -> set[str]:
    return {actor for node in nodes for actor in node.actors}


def _may_be_declared(nodes: Sequence[NodeInfo], timer: Disarm) -> bool:
    """Return whether a node declares what `timer` is for, or does not say what it declares."""
    known = declared(nodes, timer.actor_id)
    return known is None or is_declared(known, timer)
