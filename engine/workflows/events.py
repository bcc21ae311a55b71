"""The public events of an instance's newest commit, and its counters. Pure.

A repetition has the same ids; dry runs publish nothing. Only the node that appended an event counts
it: the last events of a node that dies are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine import telemetry
from engine.episodes.events import percents_reached
from engine.runtime.publish import PublicEvent
from engine.workflows.instance import Instance, was_skipped
from streams.json import JsonObject
from streams.model.events import (
    LogEvent,
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
from streams.model.money import dollars
from streams.model.triggers import Mode
from streams.model.workflows import StepOutcome, WorkflowStatus

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


def count_events(workflow: str, events: Iterable[LogEvent], *, mode: Mode) -> None:
    """Count events that were appended to an instance of `workflow` in this `mode`."""
    labels = {"workflow": workflow, "mode": mode.value}  # guard: dry-instances-counted-apart
    events = list(events)
    if any(isinstance(event, WorkflowFinished) and was_skipped(event) for event in events):
        return telemetry.instances_skipped.add(1, labels)
    for event in events:
        match event:
            case WorkflowStarted():
                telemetry.instances_started.add(1, labels)
            case WorkflowFinished(status=status):
                telemetry.instances_ended.add(1, {**labels, "status": status.value})
            case _:
                if outcome := _outcome(event):
                    telemetry.workflow_steps.add(1, {**labels, "outcome": outcome})
    return None


def _outcome(event: LogEvent) -> str:
    match event:
        case StepBegun(attempt=attempt):
            return "retried" if attempt > 1 else ""
        case StepEnded(outcome=outcome):
            return outcome.value
        case StepReused():
            return "reused"
        case StepSkipped():
            return "skipped"
        case StepPaused():
            return "paused"
        case _:
            return ""


def instance_events(instance: Instance) -> tuple[PublicEvent, ...]:
    """Return the public events of the newest commit of `instance`."""
    # guard: dry-workflow-tells-nobody
    if instance.started is None or instance.started.mode is not Mode.LIVE:
        return ()
    if busy := instance.busy_instance_id:  # guard: skipped-instance-tells-that-alone
        return (_event(instance, 0, "skipped", {"busy_instance_id": busy}),)
    told = [
        _event(instance, number, what, payload)
        for number, event in enumerate(instance.newest)
        for what, payload in _said(event)
    ]
    told += _of_budget(instance)
    blocked = WorkflowStatus.BLOCKED
    if instance.status is blocked and instance.was is not blocked:
        told.append(_event(instance, len(instance.newest), "blocked", {}))
    return tuple(told)


def _of_budget(instance: Instance) -> Iterator[PublicEvent]:
    limit, spent = instance.begun.budget_usd, instance.spent_usd
    for percent in percents_reached(limit, before=instance.spent_before_usd, spent=spent):
        said = {
            "limit": "usd",
            "percent": percent,
            "used": dollars(spent),
            "budget": dollars(limit),
        }
        yield _event(instance, f"budget_used.{percent}", "budget_used", said)


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
            yield from _events_of_item(event)
        case StepPostponed() | StepSkipped() | StepPaused():
            yield from _events_of_item(event)
        case _:
            pass


def _events_of_item(
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


def _event(instance: Instance, number: int | str, what: str, said: JsonObject) -> PublicEvent:
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
