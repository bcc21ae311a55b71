"""Whether an instance has been forgotten, and what to put to it then. Pure.

No instance is, by design: whoever takes a command to one first does what its newest commit asks
for, and answers for the command when all is done. A sweep finds what even that has missed, such as
a command that was lost with a queue that somebody emptied. What it asks for is harmless to repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engine.errors import Rejected
from engine.sweep import Verdict
from engine.workflows.effects import wake_at
from engine.workflows.instance import Instance
from engine.workflows.status import ENDED
from streams.commands import Advance, StepDone, WorkflowCommand
from streams.workflows import StepStatus, WorkflowStatus


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that runs, as far as the instance knows, and what its own journal says of it."""

    told: StepDone
    """What tells its end to the instance."""
    is_open: bool
    has_ended: bool


def running(instance: Instance) -> Iterator[StepDone]:
    """Yield what would tell the ends of all attempts that run, also of those to undo something."""
    begun = instance.begun
    workflow, id_ = begun.spec.name, begun.instance_id
    for (step, number), item in instance.with_status(StepStatus.RUNNING):
        yield StepDone(
            workflow=workflow,
            instance_id=id_,
            step=step,
            item=number,
            attempt=item.attempt,
            episode_id=item.episode_id,
        )
    for (step, number), undoing in instance.undoings.items():
        if undoing.ended is None:
            yield StepDone(
                workflow=workflow,
                instance_id=id_,
                step=step,
                item=number,
                attempt=undoing.attempt,
                episode_id=undoing.episode_id,
                is_compensation=True,
            )


def judge(
    instance: Instance,
    attempts: Sequence[Attempt],
    *,
    is_armed: bool,
    silent_s: float,
    stale_after_s: float,
) -> Verdict:
    """Return what is to be done about `instance`; `RECOVERED`: have a node look at it.

    Args:
        instance: as its journal stands.
        attempts: those that `running` yields, as their own journals stand.
        is_armed: whether a timer will have somebody look at it.
        silent_s: seconds since its last commit.
        stale_after_s: how long it may be silent.
    """
    if instance.started is None or instance.phase in ENDED:
        return Verdict.ENDED
    if silent_s < stale_after_s:
        return Verdict.HELD
    is_lost = any(each.has_ended or not each.is_open for each in attempts)
    # What is to be canceled may not have heard of it: nothing shows whether it has.
    may_not_know = instance.phase is WorkflowStatus.STOPPING
    is_due = wake_at(instance) is not None
    waits = attempts or is_due or instance.status is WorkflowStatus.BLOCKED
    if is_lost or may_not_know or not waits or (is_due and not is_armed):
        return Verdict.RECOVERED
    return Verdict.WAITING


def calls_for(instance: Instance, attempts: Sequence[Attempt]) -> Sequence[WorkflowCommand]:
    """Return what has some node go on with `instance`: first the ends that it may not know."""
    begun = instance.begun
    advance = Advance(workflow=begun.spec.name, instance_id=begun.instance_id)
    return [*(each.told for each in attempts if each.has_ended), advance]


def require_there(instance: Instance) -> None:
    """See whether anything can be put to `instance` again.

    Raises:
        Rejected: the journal does not hold it.
    """
    if instance.started is None:
        raise Rejected("the journal does not hold its instance; discard it")
