"""Requests for approval, of episodes, outputs and steps of workflows, as journals have them.

A decision is about the newest request. It is checked on the journal before it is sent, and again by
the node that handles it: between the two somebody else may decide, or the time may run out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from engine.app.workflow_plan import starter_id
from engine.operations.decide_request import ApprovalTarget
from engine.waits.approval import (
    end_in_words,
    problem_of_changes,
    problem_of_decision,
    progress_of,
)
from streams.json import raw
from streams.model import events
from streams.model.waits import Approval
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.asking.requests import CommandResult
from vigil.errors import AlreadyDecided, Mistake, NotFound, Trouble

APPROVED: Final = events.Resolution.APPROVED.value
DENIED: Final = events.Resolution.DENIED.value
EXPIRED: Final = events.Resolution.EXPIRED.value
REJECTED: Final = "rejected"
CANCELED: Final = "canceled"
"""How the requests of outputs end, and any request that nobody need decide any more."""


@dataclass(frozen=True, kw_only=True)
class ApprovalDecision:
    """How a request was decided, or ended without."""

    outcome: str
    """`approved`, `denied`, `rejected`, `expired` or `canceled`."""
    at: datetime
    by: str = ""
    reason: str = ""
    id: str = ""
    """Of the request that it follows; empty: of none."""

    @property
    def in_words(self) -> str:
        """Return what was decided, by whom, when and why."""
        return end_in_words(self.outcome, by=self.by, at=self.at, reason=self.reason)


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """Something that people are asked, or were."""

    number: int = 0
    """From 1, in order. What is asked once more, as nobody has decided in time, keeps it."""
    step: str = ""
    """Of a workflow; empty: an episode or an output asks."""
    approval: Approval
    plan: msgspec.Raw
    """What is to be done; of an output, what is to be delivered; of a step, its inputs."""
    asked_at: datetime
    decision: ApprovalDecision | None = None
    """None: it waits."""
    asked_plan: msgspec.Raw | None = None
    """As it was asked, of an output; None: `plan` is."""

    @property
    def progress(self) -> str:
        """How many have approved what takes several, and who; empty: one is enough."""
        return progress_of(self.approval)


def requests(records: Iterable[Recorded]) -> list[ApprovalRequest]:
    """Return every request in the journal of one episode, output or instance, oldest first."""
    found: list[ApprovalRequest] = []
    for record in records:
        at = record.commit.at
        for event in record.commit.events:
            if (asked := _asked(event, at)) is not None:
                found.append(replace(asked, number=found[-1].number + 1 if found else 1))
            elif (again := _asked_again(event, found, at)) is not None:
                found.append(again)
            elif (given := _given(event, found)) is not None:
                found[given.number - 1] = given
            elif (decision := _decided(event, at)) is not None:
                found = [_after(each, event, decision) for each in found]
    return found


def _after(
    asked: ApprovalRequest, event: events.LogEvent, decision: ApprovalDecision
) -> ApprovalRequest:
    step = event.step if isinstance(event, events.StepApproved | events.StepDenied) else asked.step
    is_about = asked.decision is None and asked.step == step  # guard: decision-of-one-step
    return replace(asked, decision=decision) if is_about else asked


class Owner(NamedTuple):
    """Whose a journal is: an episode's, an instance's or, by its newest proposal, an output's."""

    actor_id: str = ""
    """The actor, or the starter of the workflow; empty: of none."""
    episode_id: str = ""
    workflow: str = ""


def owner_of(records: Iterable[Recorded]) -> Owner:
    """Return whose a journal is."""
    owner = Owner()
    for record in records:
        for event in record.commit.events:
            match event:
                case events.EpisodeOpened() | events.OutputProposed():
                    owner = Owner(event.actor_id, event.episode_id)
                case events.WorkflowStarted(spec=spec):
                    owner = Owner(starter_id(spec.name), workflow=spec.name)
                case _:
                    pass
    return owner


def _asked(event: events.LogEvent, at: datetime) -> ApprovalRequest | None:
    match event:
        case events.EpisodeBlocked(approval=Approval() as approval):
            return ApprovalRequest(approval=approval, plan=approval.plan, asked_at=at)
        case events.OutputProposed(payload=payload, approval=Approval() as approval):
            return ApprovalRequest(approval=approval, plan=payload, asked_at=at)
        case events.StepApprovalAsked(step=step, inputs=inputs, approval=approval):
            return ApprovalRequest(step=step, approval=approval, plan=raw(inputs), asked_at=at)
        case _:
            return None


def _asked_again(
    event: events.LogEvent, asked: Sequence[ApprovalRequest], at: datetime
) -> ApprovalRequest | None:
    """Return the request that was made once more as nobody had decided it in time."""
    if not asked or not isinstance(event, events.OutputRetried) or event.approval is None:
        return None
    last = asked[-1]
    plan = last.asked_plan or last.plan
    return replace(last, approval=event.approval, plan=plan, asked_at=at, decision=None)


def _given(event: events.LogEvent, asked: Sequence[ApprovalRequest]) -> ApprovalRequest | None:
    """Return a request as it stands once somebody has approved it whom others have to follow."""
    waiting = [each for each in asked if each.decision is None]
    match event:
        case events.EpisodeApprovalGiven(blocked=blocked) if waiting and blocked.approval:
            approval = blocked.approval
            return replace(waiting[-1], approval=approval, plan=approval.plan)
        case events.OutputApprovalGiven(approval=approval) if waiting:
            plan = approval.plan if approval.asked_hash else waiting[-1].plan
            first = waiting[-1].asked_plan or waiting[-1].plan
            return replace(waiting[-1], approval=approval, plan=plan, asked_plan=first)
        case events.StepApprovalGiven(step=step, approval=approval, inputs=inputs):
            mine = [each for each in waiting if each.step == step]
            return replace(mine[-1], approval=approval, plan=raw(inputs)) if mine else None
        case _:
            return None


def _decided(event: events.LogEvent, at: datetime) -> ApprovalDecision | None:
    match event:
        case events.EpisodeResolved(acting_episode_id=acting, by=by, decision_id=id_) if acting:
            outcome, reason = f"{APPROVED} for episode {acting}, which acts,", event.reason
            return ApprovalDecision(outcome=outcome, at=at, by=by, reason=reason, id=id_)
        case events.EpisodeResolved(resolution=resolution, by=by, reason=reason, decision_id=id_):
            return ApprovalDecision(outcome=resolution.value, at=at, by=by, reason=reason, id=id_)
        case events.OutputApproved(by=by, reason=reason, decision_id=id_):
            outcome = APPROVED if by else EXPIRED
            return ApprovalDecision(outcome=outcome, at=at, by=by, reason=reason, id=id_)
        case events.OutputRejected(by=by, reason=reason, decision_id=id_, is_expiry=is_expiry):
            outcome = EXPIRED if is_expiry else REJECTED
            return ApprovalDecision(outcome=outcome, at=at, by=by, reason=reason, id=id_)
        case events.OutputFailed(attempt=0, error_detail=reason):  # Nobody has approved it in time.
            return ApprovalDecision(outcome=EXPIRED, at=at, reason=reason)
        case events.StepApproved(by=by, reason=reason, decision_id=id_):
            return ApprovalDecision(outcome=APPROVED, at=at, by=by, reason=reason, id=id_)
        case events.StepDenied(by=by, reason=reason, decision_id=id_, is_expiry=is_expiry):
            outcome = EXPIRED if is_expiry else DENIED
            return ApprovalDecision(outcome=outcome, at=at, by=by, reason=reason, id=id_)
        case events.OutputCanceled(reason=reason) | events.WorkflowCancelAsked(reason=reason):
            return ApprovalDecision(outcome=CANCELED, at=at, reason=reason)
        case events.EpisodeFinished(error_detail=why) | events.WorkflowAborted(error_detail=why):
            return ApprovalDecision(outcome=CANCELED, at=at, reason=why)
        case _:
            return None


HASH_DIGITS_MIN: Final = 8

HASH_DIGITS_MAX: Final = 64


def check_hash(digits: str, *, what: str) -> None:
    """Raise `Mistake` if `digits` cannot be the beginning of a plan's hash."""
    is_hex = not set(digits.lower()) - set("0123456789abcdef")
    if not (HASH_DIGITS_MIN <= len(digits) <= HASH_DIGITS_MAX and is_hex):
        length = f"{HASH_DIGITS_MIN} to {HASH_DIGITS_MAX}"
        raise Mistake(f"{what}: {digits!r} is not {length} hex digits")


def problem_with(
    asked: ApprovalRequest,
    *,
    by: str,
    at: datetime,
    plan: object = msgspec.UNSET,
    groups: Collection[str] = (),
    is_denial: bool = False,
) -> str:
    """Return why `by` cannot decide on a request now, in words; empty: they can.

    Args:
        plan: what they have made of it; unset: nothing else.
        groups: those that they are in.
    """
    plan_hash, is_edited = asked.approval.plan_hash, plan is not msgspec.UNSET
    problem = problem_of_decision(
        asked.approval,
        plan_hash=plan_hash,
        by=by,
        at=at,
        groups=groups,
        is_edited=is_edited,
        is_denial=is_denial,
    )
    if problem is None and is_edited:  # Before anybody confirms it.
        problem = problem_of_changes(asked.approval, plan)
    return problem or ""


async def read_pending(ports: Ports, target: ApprovalTarget) -> tuple[ApprovalRequest, Owner]:
    """Return the newest request of `target`, and whose it is; `Trouble`: none of its waits."""
    records = await ports.log.read(target.subject(ports.stack))
    if not records:
        group = "workflows" if target.kind == "step" else f"{target.kind}s"
        hint = f"`vigil {group} list` shows those that there are"
        raise NotFound(f"no {target} in stack {ports.stack.name}", remedy=hint)
    found = requests(records)
    mine = [each for each in found if each.step == target.step]  # guard: unasking-step-undecided
    if not mine:
        names = ", ".join(each.step for each in found if each.step and not each.decision)
        those = f"; those that do: {names}" if names else ""
        raise Trouble(f"{target} does not ask for approval{those}")
    newest = mine[-1]
    if (end := newest.decision) is not None:
        says = f"{target} does not wait any more: {end.in_words}"
        raise AlreadyDecided(says, outcome=end.outcome, at=end.at, by=end.by, reason=end.reason)
    return newest, owner_of(records)


def changed(plan: object, changes: object, target: ApprovalTarget) -> object:
    """Return `plan` with `changes`; the plan of a step is a list of the inputs of its items."""
    if target.kind == "step" and isinstance(plan, list) and not isinstance(changes, list):
        return [patched(each, changes) for each in plan]
    return patched(plan, changes)


def patched(plan: object, changes: object) -> object:
    """Return `plan` after a JSON merge patch: null removes a key, what is no object replaces."""
    if not isinstance(changes, dict):
        return changes
    kept = dict(plan) if isinstance(plan, dict) else {}
    for key, change in changes.items():
        if change is None:
            kept.pop(key, None)
        else:
            kept[key] = patched(kept.get(key), change)
    return kept


def result_of_decision(
    asked: ApprovalRequest, id_: str, records: Sequence[Recorded]
) -> CommandResult | None:
    """Return how `asked` was decided, and whether the decision `id_` did it."""
    found = [each for each in requests(records) if each.number == asked.number]
    if not found:
        return None
    decision = found[-1].decision
    if decision is None:
        given = (each for each in found[-1].approval.given if each.decision_id == id_)
        mine = next(given, None)
        if mine is None:
            return None
        what = f"{asked.step} approved".lstrip()
        return CommandResult(f"{what} by {mine.by}; {found[-1].progress}", is_wanted=True)
    if decision.id == id_:  # guard: decider-learns-standing
        what = f"{asked.step} {decision.outcome}".lstrip()
        return CommandResult(f"{what} by {decision.by}", is_wanted=True)
    return CommandResult(f"another decision stands: {decision.in_words}", is_wanted=False)
