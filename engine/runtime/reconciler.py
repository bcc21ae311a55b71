"""Has what stands agree with what the nodes that live declare: look → rule → do.

A person or a program sends it out, after a deploy. Doing it again changes nothing more.

It works beside nodes. Each change names what it was decided on, so whatever a node has changed
since is left alone. What stands is looked up first and who lives last, so that a node which comes
up and adds to it is known by then. Who lives is asked of the leader alone: a replica that lags
lacks those that have just come, and all of theirs would be ended. The tidier does what is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from engine import calm
from engine.fields import BY_CHARS_MAX, check_name, check_text
from engine.nodes import NodeInfo
from engine.reconciling import (
    ACTIONS,
    REASON_MAX,
    Action,
    Mark,
    Outcome,
    Standing,
    Step,
    declared,
    plan_all,
    reason_of,
    why_unknown,
)
from engine.runtime import ticker
from engine.runtime.census import blocked_episodes
from engine.runtime.presence import live_nodes
from engine.runtime.tidier import Tidier, each_of
from streams.clock import Clock, SystemClock
from streams.keys import remembered_of
from streams.ports import Ports

ACTIONS_MAX: Final = 10_000
"""Most that is done in one go; how much is left is said."""


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
    any more are ended; schedules that a node declares, wakes and has no timer for are armed. Events
    that no node watches any more are taken from the actor's queue. What is queued or runs goes on.
    Nothing is touched of an actor that no node has.

    Blocked episodes are found on the journal, all of it: seconds per million commits.

    Args:
        ports: of the stack.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to `REASON_MAX` characters.
        actors: only these; None: all that a live node has.
        dry_run: only find out what there is to do.
        clock: the machine's by default. Before anything is ended it waits for a second,
            and for two more around timers and events.

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
    nodes = await live_nodes(ports.gates, from_leader=True)
    wanted = sorted(_actors_of(nodes) if actors is None else set(actors))
    standing = await _standing(ports, [each for each in wanted if declared(nodes, each)])
    nodes, now = await live_nodes(ports.gates, from_leader=True), clock.now()
    actions = plan_all(nodes, standing, now=now)
    chosen = actions[:ACTIONS_MAX]
    tidier = Tidier(ports, clock, by, reason_of(reason), standing, now)
    skipped = {actor: why for actor in wanted if (why := why_unknown(nodes, actor))}
    return Reconciled(
        steps=[_planned(each) for each in chosen] if dry_run else await tidier.do_all(chosen),
        nodes=[node.name for node in nodes],
        compared=[actor for actor in wanted if actor not in skipped],
        skipped=skipped,
        left=len(actions) - len(chosen),
    )


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
            watched=await ports.world.watched(actor),
        )

    return await each_of(one, actors)


def _planned(action: Action) -> Step:
    return Step(action=action, outcome=Outcome.PLANNED)


def _actors_of(nodes: Iterable[NodeInfo]) -> set[str]:
    return {actor for node in nodes for actor in node.actors}
