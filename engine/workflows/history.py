"""An instance's life, folded: what its events make of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from msgspec.structs import replace

from engine.workflows.failure import APPROVAL_EXPIRED, DENIED
from engine.workflows.instance import UNSTARTED, Instance, Item, StepState, Undoing
from engine.workflows.status import SETTLED
from streams.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApproved,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowResumed,
    WorkflowStarted,
)
from streams.json import NOTHING
from streams.log import Recorded
from streams.workflows import ResumeHow, StepOutcome, StepStatus, WorkflowStatus

ANSWERS_KEPT: Final = 100
"""How many of the newest decisions and resumptions of people are known again when repeated."""


def denial_of(event: StepDenied) -> tuple[str, str]:
    """Return error class and detail of a step that may not run."""
    why = f": {event.reason}" if event.reason else ""
    detail = f"by {event.by}{why}" if event.by else event.reason
    return APPROVAL_EXPIRED if event.is_expiry else DENIED, detail


def fold(records: Iterable[Recorded], instance: Instance = UNSTARTED) -> Instance:
    """Return `instance` after all of `records`, oldest first."""
    for record in records:
        events = tuple(e for e in record.commit.events if isinstance(e, WorkflowEvent))
        instance = after(instance, events, at=record.commit.at, version=record.seq)
    return instance


def after(
    instance: Instance, events: Iterable[WorkflowEvent], *, at: datetime, version: int
) -> Instance:
    """Return `instance` after one commit that holds `events`."""
    was, newest = instance.status, tuple(events)
    for event in newest:
        instance = evolve(instance, event, at=at)
    return replace(instance, at=at, version=version, newest=newest, was=was)


def evolve(instance: Instance, event: WorkflowEvent, *, at: datetime) -> Instance:
    """Return `instance` after `event`, decided `at` a time. Never refuses."""
    match event:
        case WorkflowStarted():
            return _started(event, at)
        case WorkflowAborted():
            return replace(_stopped(instance), aborted=event)
        case WorkflowCancelAsked():
            return replace(_stopped(instance), cancel_asked=event)
        case CompensationBegun() | CompensationEnded():
            return _undoing(instance, event, at)
        case WorkflowFinished():
            return replace(instance, phase=event.status, finished=event)
        case StepEnded(outcome=StepOutcome.DONE) | StepReused():
            size_bytes = len(bytes(event.result))
            instance = replace(
                instance, done=instance.done + 1, results_bytes=instance.results_bytes + size_bytes
            )
        case StepApproved() | StepDenied():
            instance = _answered(instance, event.decision_id)
        case WorkflowResumed():
            instance = _answered(instance, event.resume_id)
        case _:
            pass
    step = _step_after(instance.steps[event.step], event, at=at, done=instance.done)
    return replace(instance, steps={**instance.steps, event.step: step})


def _started(event: WorkflowStarted, at: datetime) -> Instance:
    return Instance(
        phase=WorkflowStatus.RUNNING,
        started=event,
        started_at=at,
        specs={spec.id: spec for spec in event.spec.steps},
        steps={spec.id: StepState() for spec in event.spec.steps},
    )


def _answered(instance: Instance, id_: str) -> Instance:
    return replace(instance, answers=(*instance.answers, id_)[-ANSWERS_KEPT:]) if id_ else instance


def _stopped(instance: Instance) -> Instance:
    """Return `instance`, in which nothing more begins: what has not is canceled."""
    goes_on = SETTLED | {StepStatus.RUNNING, StepStatus.FAILED}
    steps = {
        name: replace(
            step,
            asked=None,
            items=tuple(
                item if item.status in goes_on else replace(item, status=StepStatus.CANCELED)
                for item in step.items
            ),
        )
        for name, step in instance.steps.items()
    }
    return replace(instance, phase=WorkflowStatus.STOPPING, steps=steps)


def _undoing(
    instance: Instance, event: CompensationBegun | CompensationEnded, at: datetime
) -> Instance:
    place = event.step, event.item
    match event:
        case CompensationBegun():
            undoing = Undoing(attempt=event.attempt, episode_id=event.episode_id, begun_at=at)
        case CompensationEnded():
            undoing = replace(instance.undoings[place], ended=event)
    return replace(
        instance,
        phase=WorkflowStatus.COMPENSATING,
        undoings={**instance.undoings, place: undoing},
    )


_StepEvent: TypeAlias = (
    StepPrepared
    | StepApprovalAsked
    | StepApproved
    | StepDenied
    | StepBegun
    | StepEnded
    | StepReused
    | StepPostponed
    | StepSkipped
    | StepPaused
    | WorkflowResumed
)


def _step_after(step: StepState, event: _StepEvent, *, at: datetime, done: int) -> StepState:
    first = step.items[0] if step.items else Item()
    match event:
        case StepPrepared(inputs=inputs):
            ready = replace(first, status=StepStatus.PENDING)
            return StepState(items=(ready,) * len(inputs), inputs=inputs)
        case StepApprovalAsked():
            waiting = replace(first, status=StepStatus.AWAITING_APPROVAL)
            return StepState(items=(waiting,), asked=event, asked_at=at)
        case StepApproved():
            return StepState(items=(replace(first, status=StepStatus.PENDING),))
        case StepDenied():
            return StepState(items=(_denied(first, event),))
        case WorkflowResumed():
            items = tuple(_resumed(item, event.how) for item in step.items)
            return replace(step, items=items)
        case _:
            before, item, rest = _around(step.items, event.item)
            return replace(step, items=(*before, _item_after(item, event, at, done), *rest))


def _around(items: tuple[Item, ...], n: int) -> tuple[tuple[Item, ...], Item, tuple[Item, ...]]:
    return items[:n], items[n], items[n + 1 :]


def _denied(item: Item, event: StepDenied) -> Item:
    error_class, detail = denial_of(event)
    return replace(item, status=StepStatus.FAILED, error_class=error_class, error_detail=detail)


def _resumed(item: Item, how: ResumeHow) -> Item:
    if item.status is not StepStatus.PAUSED:
        return item
    status = StepStatus.PENDING if how is ResumeHow.RETRY else StepStatus.SKIPPED
    return replace(item, status=status, attempts_before=item.attempt, result=NOTHING)


def _item_after(
    item: Item,
    event: StepBegun | StepEnded | StepReused | StepPostponed | StepSkipped | StepPaused,
    at: datetime,
    done: int,
) -> Item:
    match event:
        case StepBegun():
            return Item(
                status=StepStatus.RUNNING,
                attempt=event.attempt,
                attempts_before=item.attempts_before,
                episode_id=event.episode_id,
                begun_at=at,
            )
        case StepEnded():
            return replace(
                item,
                status=StepStatus(event.outcome.value),
                attempt=event.attempt,
                attempts_before=item.attempts_before + (event.outcome is StepOutcome.CANCELED),
                result=event.result,
                error_class=event.error_class,
                error_detail=event.error_detail,
                done_no=done if event.outcome is StepOutcome.DONE else 0,
            )
        case StepReused(episode_id=reused, result=result):
            return Item(
                status=StepStatus.DONE, reused_episode_id=reused, result=result, done_no=done
            )
        case StepPostponed():
            return replace(item, status=StepStatus.RETRYING, retry_at=event.retry_at)
        case StepSkipped():
            return replace(item, status=StepStatus.SKIPPED, result=NOTHING)
        case StepPaused():
            return replace(item, status=StepStatus.PAUSED)
        case _:
            assert_never(event)
