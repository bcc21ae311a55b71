"""How an instance of a workflow begins: its first event, for any cause. Pure.

One that was to begin as a step may be called off instead. Then its whole life is one commit that
says so, and who wanted to begin it finds that it is over: two cannot both be first.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import BadRequest
from engine.trigger import entity_id
from engine.workflows.ids import instance_id
from streams.events import WorkflowCancelAsked, WorkflowEvent, WorkflowFinished, WorkflowStarted
from streams.triggers import Mode, Overrides, Trigger, WorkflowTrigger
from streams.workflows import ParentStep, StepSpec, WorkflowSpec, WorkflowStatus

STARTED_BYTES_MAX: Final = 768 * 1024
"""Largest first event, as JSON: it must fit in one message, 1 MiB by the server's default."""

CALLED_OFF: Final = "called_off"
"""Error class of an instance that was to begin as a step and never did."""


class SubStart(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is to begin as a step of another one."""

    workflow: str
    instance_id: str
    trigger: WorkflowTrigger
    dedupe_key: str
    parent: ParentStep
    depth: int
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None


def started(
    spec: WorkflowSpec,
    trigger: Trigger,
    *,
    stack: str,
    dedupe_key: str,
    generation: int = 0,
    mode: Mode = Mode.LIVE,
    overrides: Overrides | None = None,
    step_overrides: dict[str, Overrides] | None = None,
) -> WorkflowStarted:
    """Return how a cause begins a workflow. The same cause gives the same instance.

    Args:
        spec: what it is to do.
        trigger: the cause, as steps get to know of it.
        stack: the stack's name.
        dedupe_key: the cause's.
        generation: how often the cause has been tried again.
        mode: whether it is meant; all its episodes are of the same mode.
        overrides: of a dry run, for all steps.
        step_overrides: step → those that go before them.

    Raises:
        BadRequest: overrides are of no step, or all of it is too large for one commit.
    """
    strays = sorted({*(step_overrides or {})} - {step.id for step in spec.steps})
    if strays:
        raise BadRequest(field="step_overrides", problem=f"there is no step {strays[0]!r}")
    event = WorkflowStarted(
        instance_id=instance_id(
            stack=stack, workflow=spec.name, dedupe_key=dedupe_key, generation=generation
        ),
        spec=spec if mode is Mode.DRY_RUN else _without_overrides(spec),
        trigger=trigger,
        dedupe_key=dedupe_key,
        subject=entity_id(trigger.payload, spec.subject_key),
        generation=generation,
        mode=mode,
        overrides=overrides,
        step_overrides=step_overrides or {},
    )
    return _of_a_size(event)


def sub_started(spec: WorkflowSpec, sub: SubStart) -> WorkflowStarted:
    """Return how the workflow of `spec` begins as a step of another one.

    Raises:
        BadRequest: all of it is too large for one commit.
    """
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
    """Return the life of an instance that is not begun: its workflow begins none any more.

    Raises:
        BadRequest: as `sub_started`.
    """
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
