"""The start of an instance, as data: its first commit, and the episode of its starter. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from engine import telemetry
from engine.app.triggers import entity_id
from engine.app.workflow_plan import SKIPPED, StartOutcome, starter_id, workflow_of
from engine.episodes.episode import Episode
from engine.errors import BadRequest
from engine.runtime.publish import PublicEvent
from engine.workflows.instance import CALLED_OFF, instance_id
from streams.json import JsonObject
from streams.model.events import (
    EpisodeConverged,
    EpisodeOpened,
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


def busy_instance(converged: EpisodeConverged | None) -> str:
    """Return the instance that kept an episode from starting another one; empty: none."""
    if converged is None:
        return ""
    said = msgspec.json.decode(converged.classification, type=StartOutcome)
    return said.instance_id if said.primary == SKIPPED else ""


def why_unbegun(episode: Episode) -> str:
    """Return why an episode has started no instance, for people; empty: it has, or still may."""
    end = episode.finished
    if end is None:  # guard: continuing-episode-may-begin
        return ""
    if busy := busy_instance(episode.converged):
        return f"instance {busy} was not over"
    return ": ".join(filter(None, (end.error_class, end.error_detail)))


def conduct_timer(workflow: str, instance_id: str) -> Timer:
    """Return the timer that calls a node of `workflow` to an instance."""
    return Timer(actor=starter_id(workflow), purpose=CONDUCT, key=instance_id, payload={})


def count_skipped(opened: EpisodeOpened, converged: EpisodeConverged | None) -> None:
    """Count the end of a starter's episode that found another instance running."""
    workflow = workflow_of(opened.actor_id)
    if workflow is not None and busy_instance(converged):
        labels = {"workflow": workflow, "mode": opened.mode.value}
        telemetry.instances_skipped.add(1, labels)


def skipped(
    opened: EpisodeOpened, converged: EpisodeConverged | None, *, seq: int
) -> PublicEvent | None:
    """Return `workflow.skipped` if another instance was busy; None: an instance has started."""
    workflow = workflow_of(opened.actor_id)
    busy = busy_instance(converged) if workflow is not None else ""  # guard: starter-alone-skips
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
    """Return the first event of an instance; `BadRequest` if overrides are wrong or too large."""
    strays = sorted({*(step_overrides or {})} - {step.id for step in spec.steps})
    if strays:
        raise BadRequest(field="step_overrides", problem=f"there is no step {strays[0]!r}")
    event = WorkflowStarted(
        instance_id=instance_id(
            stack=stack, workflow=spec.name, dedupe_key=dedupe_key, generation=generation
        ),
        # guard: dry-run-keeps-stand-ins
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
