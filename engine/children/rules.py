"""Children: the episodes that an episode starts and waits for. Pure.

    StepAnnounced(child) ──▶ the reactor sends a fire ──▶ EpisodeOpened ──▶ … ──▶ EpisodeFinished
          │                                                                            │
    EpisodeBlocked(for_children) ──▶ a look at all children         ChildEnded ◀───────┘
          │                                   │                          │
    StepRecorded(child), EpisodeResolved once it can go on ◀─────────────┘

The id of a child comes from its parent and the call, so that it is opened once. Its end stands on
its own journal, and the parent's has it only while the parent is blocked. What ended before the
block is found by the look that follows from the block, what ends after it by the command that
follows from the end; so neither is missed, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, TypeVar

from msgspec.structs import replace

from engine.app.actions import StartEpisode
from engine.app.actor import Actor
from engine.app.workflow_plan import Starter
from engine.episodes.episode import (
    UNOPENED,
    Announce,
    AnswerEpisode,
    CancelEpisode,
    Episode,
    Performed,
    Status,
    decide,
    evolve,
)
from engine.episodes.fire import FireRequest, ParentCall, fire_timer, fired_episode_id
from engine.episodes.recovery import NO_SUCH_EXPECTATION
from engine.errors import BadRequest, InvalidAction
from streams.json import raw, unraw
from streams.model.children import ChildEnd, ChildStart, EpisodeResult, WithParent
from streams.model.events import (
    EndStatus,
    EpisodeEvent,
    EpisodeOpened,
    Resolution,
    StepAnnounced,
    StepKind,
    requester_of,
)
from streams.model.money import NO_USD, USD_LEAST
from streams.model.triggers import Budget, EpisodeTrigger
from streams.ports.domain_events import HOPS_MAX
from streams.ports.timers import Timer

CHILDREN_MAX: Final = 1_000
"""Most children of one episode that it waits for at a time: each is a branch of its function."""

TOO_MANY: Final = "too_many_children"
"""Error class of a call for one more."""

NO_SUCH_ACTOR: Final = "no_such_actor"
TOO_MANY_HOPS: Final = "too_many_hops"
"""Error classes of other calls that start nothing, beside `NO_SUCH_EXPECTATION`."""

NAMED_MAX: Final = 16
"""Most expectations that an error names."""

PARENT_ENDED: Final = "parent_ended"
"""Error class of a child that was not opened before its parent ended."""

NOT_OPENED: Final = "not_opened"
"""Error class of a child that no node could open."""


class CannotStart(Exception):
    """A child cannot be started: the call fails with `error_class`."""

    def __init__(self, error_class: str, detail: str) -> None:
        super().__init__(detail)
        self.error_class = error_class


def name_of(action: StartEpisode) -> str:
    """Return what the step of a child has as its tool: `<actor>.<expectation>`."""
    return f"{action.actor}.{action.expectation}"


def asked(action: StartEpisode, mark: str) -> Performed:
    """Return the step of a child without what it brings back."""
    args = raw({"payload": action.payload})
    return Performed(kind=StepKind.EPISODE, fingerprint=mark, tool_name=name_of(action), args=args)


def refused(action: StartEpisode, why: CannotStart, mark: str, *, path: str) -> Performed:
    """Return the step of a child that cannot be started."""
    error_class, detail = why.error_class, str(why)
    said = EpisodeResult(
        episode_id="", status="refused", error_class=error_class, error_detail=detail
    )
    step = replace(asked(action, mark), result=raw(said), path=path)
    return replace(step, error_class=error_class, error_detail=detail)


def key_of(action: StartEpisode, parent_id: str, idempotency_key: str) -> str:
    """Return what names a child: its own key within its parent, or the call."""
    return f"{parent_id}:{action.key}" if action.key else idempotency_key


def child_of(
    action: StartEpisode, opened: EpisodeOpened, *, key: str, left: Budget, group: str, stack: str
) -> ChildStart:
    """Return the child that `action` starts for the episode `opened`, named by `key`."""
    return ChildStart(
        episode_id=fired_episode_id(
            stack=stack,
            actor=action.actor,
            expectation=action.expectation,
            key=key,
            mode=opened.mode,
        ),
        actor_id=action.actor,
        expectation_id=action.expectation,
        payload=unraw(raw(action.payload)),
        budget=left,
        with_parent=WithParent(action.with_parent),
        group=group,
    )


def check(
    opened: EpisodeOpened,
    episode: Episode,
    announced: Announce,
    *,
    actors: Mapping[str, Actor],
) -> None:
    """Raise `CannotStart` if the child that `opened` is to announce cannot be opened.

    `actors` are those that the node knows.
    """
    child = announced.child
    assert child is not None, "it announces a child"
    actor = actors.get(child.actor_id)
    if actor is None or isinstance(actor, Starter):  # guard: child-of-unknown-actor-refused
        raise CannotStart(NO_SUCH_ACTOR, f"this node has no actor {child.actor_id!r}")
    if child.expectation_id not in actor.expectations:  # guard: child-of-unknown-expectation
        known = ", ".join(sorted(actor.expectations)[:NAMED_MAX])
        detail = f"actor {child.actor_id!r} has no expectation {child.expectation_id!r}"
        raise CannotStart(NO_SUCH_EXPECTATION, f"{detail}; it has {known}")
    if opened.trigger.hops >= HOPS_MAX:  # guard: child-hops-cap
        detail = f"{opened.trigger.hops} lie between it and the outside, the limit is {HOPS_MAX}"
        raise CannotStart(TOO_MANY_HOPS, detail)
    # guard: children-max
    if len(episode.children) >= CHILDREN_MAX:
        raise CannotStart(TOO_MANY, f"it waits for {CHILDREN_MAX:,} already, which is the limit")
    try:
        request_timer(opened, announced)
    except BadRequest as error:
        raise CannotStart(InvalidAction.error_class, str(error)) from error


def left_of(
    episode: Episode, budget: Budget, *, begun: int, wall_used_s: float, usd_taken: Decimal = NO_USD
) -> Budget:
    """Return what is left of a budget for a child, at least one turn of it.

    `begun`: how many turns have begun and are not recorded yet; `usd_taken`: what requests that are
    about to be announced may cost.
    """
    turns = max(1, budget.turns - episode.turns_used - begun) if budget.turns > 0 else 0
    tokens = max(1, budget.tokens - episode.tokens_used) if budget.tokens > 0 else 0
    wall_s = max(0.001, budget.wall_s - wall_used_s) if budget.wall_s > 0 else 0.0
    return Budget(
        turns=turns, tokens=tokens, wall_s=wall_s, usd=_usd_left(episode, budget, usd_taken)
    )


def _usd_left(episode: Episode, budget: Budget, taken: Decimal) -> Decimal:
    if budget.usd <= 0:
        return NO_USD
    # What others may spend at the same time is not there any more.
    # guard: child-usd-beside-others
    return max(USD_LEAST, budget.usd - episode.usd_used - episode.usd_reserved - taken)


def capped(declared: Budget, left: Budget) -> Budget:
    """Return the budget of a child: what is declared, or what its parent had left, if less."""
    return Budget(
        turns=int(_least(declared.turns, left.turns)),
        tokens=int(_least(declared.tokens, left.tokens)),
        wall_s=_least(declared.wall_s, left.wall_s),
        usd=_least(declared.usd, left.usd),
    )


def kept_for(action: StartEpisode, left: Budget, *, actors: Mapping[str, Actor]) -> Budget:
    """Return what a child may use: of dollars no more than its expectation declares.

    So that others may be started beside it; of the other limits each gets all that is left.
    """
    actor = actors.get(action.actor)
    expectation = actor.expectations.get(action.expectation) if actor is not None else None
    if left.usd <= 0 or expectation is None:
        return left
    # guard: child-reserves-what-it-may
    return replace(left, usd=_least(expectation.budget.usd, left.usd))


N = TypeVar("N", float, Decimal)


def _least(declared: N, left: N) -> N:
    if left <= 0:
        return declared
    return left if declared <= 0 else min(declared, left)  # guard: child-within-parents-budget


def request_timer(opened: EpisodeOpened, announced: Announce | StepAnnounced) -> Timer:
    """Return the fire that opens an announced child of `opened`; `BadRequest`: it cannot work."""
    child = announced.child
    assert child is not None, "it announces a child"
    request = FireRequest(
        expectation=child.expectation_id,
        requested_by=f"episode {opened.episode_id}",
        key=announced.idempotency_key,
        payload=child.payload,
        priority=opened.priority,
        mode=opened.mode,  # guard: dry-parent-dry-child
        overrides=opened.overrides,
        hops=opened.trigger.hops + 1,  # guard: child-hop
        parent=ParentCall(
            actor_id=opened.actor_id,
            episode_id=opened.episode_id,
            call=announced.path,
            budget=child.budget,
            with_parent=child.with_parent,
            requested_by=requester_of(opened),
        ),
    )
    return fire_timer(request, actor=child.actor_id)


def parent_of(opened: EpisodeOpened) -> EpisodeTrigger | None:
    """Return what says which episode waits for the end of `opened`; None: none does."""
    if opened.fork is not None:  # guard: fork-has-no-parent
        return None
    return opened.trigger if isinstance(opened.trigger, EpisodeTrigger) else None


def unopened(opened: EpisodeOpened, error_class: str, detail: str) -> tuple[EpisodeEvent, ...]:
    """Return the whole life of a child that is not run: who waits for it looks there."""
    end = CancelEpisode(error_class=error_class, error_detail=detail)
    return opened, decide(evolve(UNOPENED, opened), end)


def awaited(episode: Episode) -> Mapping[str, StepAnnounced]:
    """Return the announced children that a blocked episode waits for, by path."""
    blocked = episode.blocked if episode.status is Status.BLOCKED else None
    if blocked is None or not blocked.for_children:  # guard: child-recorded-while-blocked
        return {}
    return episode.children


def result_of(child: Episode) -> EpisodeResult:
    """Return what the parent of `child`, which has ended, gets."""
    opened, finished, converged = child.opened, child.finished, child.converged
    assert opened is not None, "an end of what was never opened"
    assert finished is not None, "it has ended"
    said = EpisodeResult(
        episode_id=opened.episode_id,
        status=finished.status.value,
        findings=finished.findings,
        error_class=finished.error_class,
        error_detail=finished.error_detail,
    )
    if converged is None:
        return said
    return replace(
        said,
        value=unraw(converged.result),
        summary=converged.summary,
        classification=unraw(converged.classification),
        confidence=converged.confidence,
    )


def performed(announced: StepAnnounced, child: Episode) -> Performed:
    """Return the step of an announced child that has ended."""
    finished, said = child.finished, announced.child
    assert finished is not None, "it has ended"
    assert said is not None, "it announces a child"
    is_failed = finished.status in {EndStatus.FAILED, EndStatus.CANCELED}
    return Performed(
        kind=StepKind.EPISODE,
        fingerprint=announced.fingerprint,
        tool_name=announced.tool_name,
        args=raw({"payload": said.payload}),
        result=raw(result_of(child)),
        error_class=finished.error_class if is_failed else "",
        error_detail=finished.error_detail if is_failed else "",
        cost_tokens=finished.tokens_used,
        child=ChildEnd(
            episode_id=said.episode_id,
            turns=finished.turns_used,
            wall_ms=finished.wall_used_ms,
            usd=child.usd_used + child.usd_reserved,  # guard: canceled-child-request-counts
        ),
        path=announced.path,
    )


def ends(episode: Episode, ended: Mapping[str, Performed]) -> tuple[EpisodeEvent, ...]:
    """Return the events of the ends of children of `episode`, by path; none: it has them all.

    Its block ends with them once a branch can go on: one that waits for a child alone, or for all
    children of a `gather`.
    """
    blocked = episode.blocked
    if blocked is None:
        return ()
    until = blocked.wait.expires_at if blocked.wait is not None else None
    events: list[EpisodeEvent] = []
    groups: list[str] = []
    for path, found in ended.items():
        announced = awaited(episode).get(path)
        child = announced.child if announced is not None else None
        if found.child is None or child is None:
            continue
        step, said = found, replace(found.child, block_no=blocked.step_no, until=until)
        has_counted = any(said.episode_id in some for some in episode.children_ended)
        if has_counted:  # guard: child-counts-once
            step, said = replace(step, cost_tokens=0), replace(said, turns=0, wall_ms=0, usd=NO_USD)
        event = decide(episode, replace(step, child=said))
        episode = evolve(episode, event)
        events.append(event)
        groups.append(child.group)
    # guard: group-of-children-wakes-once
    if any(not group or not _is_left(group, episode) for group in groups):
        id_ = f"children.{blocked.step_no}"
        ending = AnswerEpisode(resolution=Resolution.RESOLVED, decision_id=id_)
        events.append(decide(episode, ending))
    return tuple(events)


def _is_left(group: str, episode: Episode) -> bool:
    waits = (each.child for each in awaited(episode).values())
    return any(child is not None and child.group == group for child in waits)
