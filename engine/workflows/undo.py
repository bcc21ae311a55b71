"""Undoing what an instance has done: one item after the other, what was done last first. Pure.

Only items that are done are undone, and of these only those whose step has a compensation. One that
cannot be undone keeps none of the others from it; the end of the instance names its step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from engine.app.workflow import STEP_TIMEOUT, remedy
from engine.workflows.instance import Instance, Place, Undoing, attempt_id, attempt_key
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    WorkflowEvent,
    WorkflowFinished,
)
from streams.model.workflows import StepOutcome, StepStatus, WorkflowStatus

CANCELED: Final = "canceled"
"""Error class of an instance that a person or a program has canceled."""


def to_undo(instance: Instance) -> Sequence[Place]:
    """Return the items that are undone if the instance stops, in the order in which they are."""
    done = [
        (item.done_no, place)
        for place, item in instance.with_status(StepStatus.DONE)
        if instance.specs[place[0]].compensation is not None
    ]
    return [place for _, place in sorted(done, reverse=True)]


def next_undoing(instance: Instance, *, stack: str, at: datetime) -> tuple[WorkflowEvent, ...]:
    """Return what happens next now that nothing runs any more but undoing; empty: it waits."""
    for place in to_undo(instance):
        undoing = instance.undoings.get(place)
        if undoing is None:
            return (_begun(instance, place, attempt=1, stack=stack),)
        if undoing.ended is None:
            return _overdue(instance, place, undoing, at=at)
        if undoing.ended.retry_at is not None:
            if undoing.ended.retry_at > at:
                return ()
            return (_begun(instance, place, attempt=undoing.attempt + 1, stack=stack),)
    return (_finished(instance),)


def undoing_ended(
    instance: Instance,
    place: Place,
    undoing: Undoing,
    *,
    outcome: StepOutcome,
    error_class: str,
    error_detail: str,
    at: datetime,
) -> CompensationEnded:
    """Return that an attempt to undo an item is over, and when another one is made, if one is."""
    retry_at = None
    if outcome is not StepOutcome.DONE:
        policy, seed = instance.specs[place[0]].on_failure, undoing.episode_id
        answer = remedy(policy, error_class=error_class, attempts=undoing.attempt, at=at, seed=seed)
        retry_at = answer if isinstance(answer, datetime) else None
    return CompensationEnded(
        step=place[0],
        item=place[1],
        attempt=undoing.attempt,
        episode_id=undoing.episode_id,
        outcome=outcome,
        error_class=error_class,
        error_detail=error_detail,
        retry_at=retry_at,
    )


def undoing_deadline(instance: Instance, place: Place, undoing: Undoing) -> datetime | None:
    """Return until when the newest attempt to undo an item may take; None: it may take any time."""
    timeout_s = instance.specs[place[0]].timeout_s
    return undoing.begun_at + timedelta(seconds=timeout_s) if timeout_s else None


def _overdue(
    instance: Instance, place: Place, undoing: Undoing, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    deadline = undoing_deadline(instance, place, undoing)
    if deadline is None or deadline > at:
        return ()
    ended = undoing_ended(
        instance,
        place,
        undoing,
        outcome=StepOutcome.FAILED,
        error_class=STEP_TIMEOUT,
        error_detail=f"after {instance.specs[place[0]].timeout_s:g} s",
        at=at,
    )
    return (ended,)


def _begun(instance: Instance, place: Place, *, attempt: int, stack: str) -> CompensationBegun:
    step, item = place
    key = attempt_key(instance.begun.instance_id, step, item, attempt, is_compensation=True)
    task = instance.specs[step].compensation
    episode_id = attempt_id(stack=stack, task=task, workflow="", key=key)
    return CompensationBegun(step=step, item=item, attempt=attempt, episode_id=episode_id)


def _finished(instance: Instance) -> WorkflowFinished:
    failed = [
        step
        for (step, _), undoing in instance.undoings.items()
        if undoing.ended is not None and undoing.ended.outcome is not StepOutcome.DONE
    ]
    not_undone = tuple(dict.fromkeys(failed))
    if instance.aborted is not None:
        return WorkflowFinished(
            status=WorkflowStatus.FAILED,
            error_class=instance.aborted.error_class,
            error_detail=instance.aborted.error_detail,
            step=instance.aborted.step,
            not_undone=not_undone,
        )
    asked = instance.cancel_asked
    assert asked is not None, "an instance stops because it was aborted or canceled"
    why = f": {asked.reason}" if asked.reason else ""
    return WorkflowFinished(
        status=WorkflowStatus.CANCELED,
        error_class=CANCELED,
        error_detail=f"by {asked.by}{why}",
        not_undone=not_undone,
    )
