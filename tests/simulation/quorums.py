"""What several people have to approve: each of them counts once, and no fewer are enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from streams.model.commands import Decide, DecideStep, Verdict
from streams.model.events import (
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeResolved,
    LogEvent,
    OutputApprovalGiven,
    OutputApproved,
    OutputProposed,
    OutputRetried,
    Resolution,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
)
from streams.model.waits import Approval, GivenApproval
from tests.simulation.evidence import Breaches, Evidence

KINDS: Final = ("episode", "output", "step")
"""What asks people."""


class Counted(msgspec.Struct, frozen=True):
    """A request for approval, and what was said about it."""

    kind: str
    owner: str
    asked: Approval
    given: tuple[GivenApproval, ...]
    """All approvals that were not enough."""
    approved_by: str
    """Who approved it in the end, in order; empty: nobody, or not enough did."""

    @property
    def ends_half(self) -> bool:
        """Whether some have approved it, and too few."""
        return bool(self.given) and not self.approved_by


def counts_of(evidence: Evidence) -> Iterator[Counted]:
    """Yield each request for approval."""
    for life in evidence.lives.values():
        yield from _counted("episode", life.id, [each.event for each in life.events])
    for key, events in evidence.outputs.items():
        yield from _counted("output", key, [each.event for each in events])
    for flow in evidence.flows.values():
        steps: dict[str, list[LogEvent]] = {}
        for each in flow.events:
            if isinstance(each.event, StepApprovalAsked | StepApprovalGiven | StepApproved):
                steps.setdefault(each.event.step, []).append(each.event)
        for step, events in steps.items():
            yield from _counted("step", f"{flow.id}/{step}", events)


def _counted(kind: str, owner: str, events: Sequence[LogEvent]) -> Iterator[Counted]:
    asked: Counted | None = None
    for event in events:
        if (anew := _asked(event)) is not None:
            if asked is not None:
                yield asked
            asked = Counted(kind, owner, anew, (), "")
        elif asked is not None:
            asked = _after(asked, event)
    if asked is not None:
        yield asked


def _asked(event: LogEvent) -> Approval | None:
    match event:
        case EpisodeBlocked(approval=approval):
            return approval
        case OutputProposed(approval=approval) | OutputRetried(approval=approval):
            return approval
        case StepApprovalAsked(approval=approval):
            return approval
        case _:
            return None


def _after(asked: Counted, event: LogEvent) -> Counted:
    match event:
        case EpisodeApprovalGiven(blocked=EpisodeBlocked(approval=Approval(given=given))):
            return msgspec.structs.replace(asked, given=given)
        case OutputApprovalGiven(approval=approval) | StepApprovalGiven(approval=approval):
            return msgspec.structs.replace(asked, given=approval.given)
        case EpisodeResolved(resolution=Resolution.APPROVED, by=by):
            return msgspec.structs.replace(asked, approved_by=by)
        case OutputApproved(by=by) | StepApproved(by=by):
            return msgspec.structs.replace(asked, approved_by=by)
        case _:
            return asked


def last_of(by: str) -> str:
    """Return who was the last of those who approved something together."""
    return by.rpartition(", ")[2]


def is_decided(approval: Approval, heard: Sequence[Decide]) -> bool:
    """Return whether decisions that may all stand are enough for one."""
    yes = {each.by for each in heard if each.verdict is Verdict.APPROVE}
    return len(yes) >= approval.quorum or any(each.verdict is Verdict.DENY for each in heard)


def as_many_approve_as_have_to(evidence: Evidence) -> Breaches:
    """All different, all of those who may, each by a decision of their own on that plan."""
    sent = {
        (each.command.id, each.command.by, each.command.plan_hash)
        for each in evidence.history.asked
        if isinstance(each.command, Decide | DecideStep) and each.command.verdict is Verdict.APPROVE
    }
    for counted in counts_of(evidence):
        asked, names = counted.asked, [each.by for each in counted.given]
        if len(names) >= asked.quorum:
            yield f"{counted.owner}: {names} were enough, and it waited on"
        together = counted.approved_by.split(", ") if counted.approved_by else names
        if counted.approved_by and together[: len(names)] != names:
            yield f"{counted.owner}: approved by {together}, of whom {names} had approved"
        if counted.approved_by and len(together) != asked.quorum:
            yield f"{counted.owner}: approved by {together}, and {asked.quorum} had to"
        if len({*together}) != len(together):
            yield f"{counted.owner}: somebody counts twice in {together}"
        if asked.approvers and not {*together} <= {*asked.approvers}:
            yield f"{counted.owner}: approved by {together}, and only {asked.approvers} may"
        for each in counted.given:
            if (each.decision_id, each.by, asked.plan_hash) not in sent:
                yield f"{counted.owner}: nobody has sent {each}"


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (as_many_approve_as_have_to,)
