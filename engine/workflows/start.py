"""The start of an instance, as data: what its cause asks for, and its first commit. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from engine.app.triggers import entity_id
from engine.app.workflow_plan import starter_id
from engine.errors import BadRequest
from engine.workflows.instance import CALLED_OFF, NOT_STARTED, OVERLAP, instance_id
from streams.model.events import (
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.triggers import Mode, Overrides, Trigger, WorkflowTrigger
from streams.model.workflows import ParentStep, StepSpec, WorkflowSpec, WorkflowStatus
from streams.ports.timers import Timer

CONDUCT: Final = "conduct"
"""Purpose of the timer for an instance. The key is the instance."""


STARTED_BYTES_MAX: Final = 768 * 1024
"""Largest first event, as JSON: it must fit in one message, 1 MiB by the server's default."""


def conduct_timer(workflow: str, instance_id: str) -> Timer:
    """Return the timer that calls a node of `workflow` to an instance."""
    return Timer(actor=starter_id(workflow), purpose=CONDUCT, key=instance_id, payload={})


class InstanceStart(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that a cause is to start. The id comes from the cause."""

    workflow: str
    instance_id: str
    trigger: Trigger
    dedupe_key: str
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None
    step_overrides: dict[str, Overrides] = {}
    cooldown_s: int = 0


def start_of(
    workflow: str, trigger: Trigger, dedupe_key: str, *, stack: str, cooldown_s: int = 0
) -> InstanceStart:
    """Return the instance that a cause starts."""
    id_ = instance_id(stack=stack, workflow=workflow, dedupe_key=dedupe_key)
    return InstanceStart(
        workflow=workflow,
        instance_id=id_,
        trigger=trigger,
        dedupe_key=dedupe_key,
        cooldown_s=cooldown_s,
    )


class SubStart(msgspec.Struct, frozen=True, kw_only=True):
    """A nested instance that is to start."""

    workflow: str
    instance_id: str
    trigger: WorkflowTrigger
    dedupe_key: str
    parent: ParentStep
    depth: int
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None


def started(spec: WorkflowSpec, start: InstanceStart) -> WorkflowStarted:
    """Return the first event of an instance; `BadRequest` if overrides are wrong or too large."""
    strays = sorted(start.step_overrides.keys() - {step.id for step in spec.steps})
    if strays:
        raise BadRequest(field="step_overrides", problem=f"there is no step {strays[0]!r}")
    event = WorkflowStarted(
        instance_id=start.instance_id,
        # guard: dry-run-keeps-stand-ins
        spec=spec if start.mode is Mode.DRY_RUN else _without_overrides(spec),
        trigger=start.trigger,
        dedupe_key=start.dedupe_key,
        subject=entity_id(start.trigger.payload, spec.subject_key),
        mode=start.mode,
        overrides=start.overrides,
        step_overrides=start.step_overrides,
        cooldown_s=start.cooldown_s,
    )
    return _of_a_size(event)


def skipped(event: WorkflowStarted, busy: str) -> tuple[WorkflowEvent, ...]:
    """Return the events of an instance that never starts: `busy` holds its subject."""
    reason = f"instance {busy} was not over"
    return (
        replace(event, spec=replace(event.spec, steps=()), held_by=busy),
        WorkflowCancelAsked(by=OVERLAP, reason=reason),
        WorkflowFinished(status=WorkflowStatus.CANCELED, error_class=OVERLAP, error_detail=reason),
    )


def refused(start: InstanceStart, why: str) -> tuple[WorkflowEvent, ...]:
    """Return the events of an instance that never starts: its cause is impossible, or too large."""
    failed = WorkflowStatus.FAILED
    return (
        WorkflowStarted(
            instance_id=start.instance_id,
            spec=WorkflowSpec(name=start.workflow, steps=()),
            trigger=replace(start.trigger, payload={}),
            dedupe_key=start.dedupe_key,
            subject=start.trigger.entity_id,
            mode=start.mode,
            cooldown_s=start.cooldown_s,
        ),
        WorkflowAborted(error_class=NOT_STARTED, error_detail=why),
        WorkflowFinished(status=failed, error_class=NOT_STARTED, error_detail=why),
    )


def sub_started(spec: WorkflowSpec, sub: SubStart) -> WorkflowStarted:
    """Return the first event of a nested instance; `BadRequest` if it is too large."""
    event = WorkflowStarted(
        instance_id=sub.instance_id,
        spec=spec if sub.mode is Mode.DRY_RUN else _without_overrides(spec),
        trigger=sub.trigger,
        dedupe_key=sub.dedupe_key,
        subject=entity_id(sub.trigger.payload, spec.subject_key),
        mode=sub.mode,
        overrides=sub.overrides,
        parent=sub.parent,
        depth=sub.depth,
    )
    return _of_a_size(event)


def called_off(sub: SubStart) -> tuple[WorkflowEvent, ...]:
    """Return the events of a nested instance that never starts: its workflow is disabled."""
    nothing = WorkflowSpec(name=sub.workflow, steps=())
    by, reason = f"workflow {sub.parent.workflow}", f"workflow {sub.workflow} begins nothing now"
    return (
        sub_started(nothing, sub),
        WorkflowCancelAsked(by=by, reason=reason),
        WorkflowFinished(
            status=WorkflowStatus.CANCELED, error_class=CALLED_OFF, error_detail=reason
        ),
    )


def _without_overrides(spec: WorkflowSpec) -> WorkflowSpec:
    return replace(spec, steps=tuple(_meant(step) for step in spec.steps))


def _meant(step: StepSpec) -> StepSpec:
    undo = step.compensation
    return replace(
        step,
        task=replace(step.task, overrides=None) if step.task else None,
        compensation=replace(undo, overrides=None) if undo else None,
    )


def _of_a_size(event: WorkflowStarted) -> WorkflowStarted:
    size_bytes = len(msgspec.json.encode(event))
    if size_bytes > STARTED_BYTES_MAX:
        problem = f"{size_bytes:,} bytes with its trigger, the limit is {STARTED_BYTES_MAX:,}"
        raise BadRequest(field="workflow", problem=problem)
    return event
