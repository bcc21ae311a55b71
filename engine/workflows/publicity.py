"""What the world is told about an instance: public events, as data. Pure.

They follow from the newest commit, so whoever repeats what that asks for tells the same under the
same ids. As of episodes, the world is told nothing of a dry run. Of an instance that did not begin
there is no commit: it is told at the end of the episode that was to begin it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.publicity import PublicEvent
from engine.workflows.instance import Instance
from engine.workflows.starter import busy_instance, workflow_of
from streams.events import (
    EpisodeConverged,
    EpisodeOpened,
    StepApprovalAsked,
    StepBegun,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepReused,
    StepSkipped,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.json import JsonObject
from streams.triggers import Mode
from streams.workflows import StepOutcome, WorkflowStatus

_ENDS: Final[Mapping[WorkflowStatus, str]] = {
    WorkflowStatus.DONE: "completed",
    WorkflowStatus.FAILED: "failed",
    WorkflowStatus.CANCELED: "canceled",
}

_STEP_ENDS: Final[Mapping[StepOutcome, str]] = {
    StepOutcome.DONE: "step_completed",
    StepOutcome.FAILED: "step_failed",
    StepOutcome.CANCELED: "step_canceled",
}


def news(instance: Instance) -> tuple[PublicEvent, ...]:
    """Return what the world is told of the newest commit of `instance`."""
    if instance.started is None or instance.started.mode is not Mode.LIVE:
        return ()
    told = [
        _event(instance, number, what, payload)
        for number, event in enumerate(instance.newest)
        for what, payload in _said(event)
    ]
    blocked = WorkflowStatus.BLOCKED
    if instance.status is blocked and instance.was is not blocked:
        told.append(_event(instance, len(instance.newest), "blocked", {}))
    return tuple(told)


def skipped(
    opened: EpisodeOpened, converged: EpisodeConverged | None, *, seq: int
) -> PublicEvent | None:
    """Return `workflow.skipped`, if an episode was to begin an instance and found another one busy.

    Args:
        opened: how the episode was opened.
        converged: what it has decided.
        seq: what the journal has its end at.
    """
    workflow = workflow_of(opened.actor_id)
    busy = busy_instance(converged) if workflow is not None else ""
    if not busy:
        return None
    payload: JsonObject = {
        "workflow": workflow,
        "subject": opened.trigger.entity_id,
        "busy_instance_id": busy,
        "episode_id": opened.episode_id,
        "journal_seq": seq,
    }
    id_, hops = f"{opened.episode_id}.skipped", opened.trigger.hops + 1
    return PublicEvent(name="workflow.skipped", id=id_, payload=payload, hops=hops)


def _said(event: WorkflowEvent) -> Iterator[tuple[str, JsonObject]]:
    match event:
        case WorkflowStarted(parent=parent):
            yield "started", {"parent_instance_id": parent.instance_id if parent else ""}
        case WorkflowFinished():
            failure = _failure(event.error_class)
            said = {"step": event.step, "not_undone": list(event.not_undone)}
            yield _ENDS[event.status], {"status": event.status.value, **said, **failure}
        case StepApprovalAsked(step=step, approval=approval):
            said = {"plan_hash": approval.plan_hash, "summary": approval.summary}
            yield "step_approval_asked", {"step": step, **said}
        case StepBegun() | StepEnded() | StepReused():
            yield from _said_of_item(event)
        case StepPostponed() | StepSkipped() | StepPaused():
            yield from _said_of_item(event)
        case _:
            pass


def _said_of_item(
    event: StepBegun | StepEnded | StepReused | StepPostponed | StepSkipped | StepPaused,
) -> Iterator[tuple[str, JsonObject]]:
    place: JsonObject = {"step": event.step, "item": event.item}
    match event:
        case StepBegun():
            attempt = {"attempt": event.attempt, "episode_id": event.episode_id}
            yield "step_started", {**place, **attempt}
        case StepEnded():
            attempt = {"attempt": event.attempt, "episode_id": event.episode_id}
            failure = _failure(event.error_class)
            yield _STEP_ENDS[event.outcome], {**place, **attempt, **failure}
        case StepReused(episode_id=reused):
            yield "step_reused", {**place, "reused_episode_id": reused}
        case StepPostponed():
            retry_at = event.retry_at.isoformat()
            yield "step_postponed", {**place, "attempt": event.attempt, "retry_at": retry_at}
        case StepSkipped():
            yield "step_skipped", {**place, "reason": event.reason.value}
        case StepPaused():
            yield "step_paused", place


def _failure(error_class: str) -> JsonObject:
    # Its detail quotes what failed, which may quote credentials: not for everybody.
    return {"error_class": error_class} if error_class else {}


def _event(instance: Instance, number: int, what: str, said: JsonObject) -> PublicEvent:
    begun = instance.begun
    payload: JsonObject = {
        "workflow": begun.spec.name,
        "instance_id": begun.instance_id,
        "subject": begun.subject,
        **said,
        "journal_seq": instance.version,
    }
    return PublicEvent(
        name=f"workflow.{what}",
        id=f"{begun.instance_id}.{instance.version}.{number}",
        payload=payload,
        hops=begun.trigger.hops + 1,
    )
