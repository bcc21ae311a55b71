"""Counts what happens to instances, for who measures: each event once it is on the journal.

Only whoever has appended an event counts it. So nothing is counted twice, and what a node appends
in the moment of its death is not counted at all. Dry runs are told apart by a label, as those of
episodes are.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import telemetry
from engine.workflows.starter import busy_instance, workflow_of
from streams.events import (
    EpisodeConverged,
    EpisodeOpened,
    LogEvent,
    StepBegun,
    StepEnded,
    StepPaused,
    StepReused,
    StepSkipped,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.triggers import Mode


def count_events(workflow: str, events: Iterable[LogEvent], *, mode: Mode) -> None:
    """Count what was appended to an instance of `workflow`, which is of a `mode`."""
    labels = {"workflow": workflow, "mode": mode.value}
    for event in events:
        match event:
            case WorkflowStarted():
                telemetry.instances_started.add(1, labels)
            case WorkflowFinished(status=status):
                telemetry.instances_ended.add(1, {**labels, "status": status.value})
            case _:
                if outcome := _outcome(event):
                    telemetry.workflow_steps.add(1, {**labels, "outcome": outcome})


def count_skipped(opened: EpisodeOpened, converged: EpisodeConverged | None) -> None:
    """Count the end of an episode that was to begin an instance and found another one busy."""
    workflow = workflow_of(opened.actor_id)
    if workflow is not None and busy_instance(converged):
        labels = {"workflow": workflow, "mode": opened.mode.value}
        telemetry.instances_skipped.add(1, labels)


def _outcome(event: LogEvent) -> str:
    """Return what an event says came of an item; empty: nothing yet."""
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
