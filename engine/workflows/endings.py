"""How an attempt ended, as its own journal says it: that of an episode, or of an instance. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine.episodes.episode import Episode
from engine.workflows.instance import CALLED_OFF, AttemptEnded, Instance
from streams.json import NOTHING, raw, unraw
from streams.model.commands import StepDone
from streams.model.events import EndStatus, EpisodeConverged, EpisodeOpened, WorkflowFinished
from streams.model.triggers import WorkflowTrigger
from streams.model.workflows import StepOutcome, WorkflowStatus

_OF_EPISODES: Final[Mapping[EndStatus, StepOutcome]] = {
    EndStatus.DONE: StepOutcome.DONE,
    EndStatus.PARTIALLY_FAILED: StepOutcome.DONE,
    EndStatus.FAILED: StepOutcome.FAILED,
    EndStatus.CANCELED: StepOutcome.CANCELED,
}

_OF_INSTANCES: Final[Mapping[WorkflowStatus, StepOutcome]] = {
    WorkflowStatus.DONE: StepOutcome.DONE,
    WorkflowStatus.FAILED: StepOutcome.FAILED,
    WorkflowStatus.CANCELED: StepOutcome.CANCELED,
}


def end_of_episode(episode: Episode) -> AttemptEnded | None:
    """Return how `episode` ended as an attempt; None if it has not, or is none."""
    opened, finished = episode.opened, episode.finished
    if opened is None or finished is None or not isinstance(opened.trigger, WorkflowTrigger):
        return None
    return AttemptEnded(
        step=opened.trigger.workflow_step_id,
        item=opened.trigger.item,
        attempt=opened.trigger.attempt,
        episode_id=opened.episode_id,
        outcome=_OF_EPISODES[finished.status],
        error_class=finished.error_class,
        error_detail=finished.error_detail,
        result=result_of(episode.converged),
        is_compensation=opened.trigger.is_compensation,
    )


def end_of_instance(instance: Instance) -> AttemptEnded | None:
    """Return how `instance` ended as an attempt of another one; None if it has not, or is none."""
    finished, parent = instance.finished, instance.begun.parent
    if finished is None or parent is None:
        return None
    return AttemptEnded(
        step=parent.step,
        item=parent.item,
        attempt=parent.attempt,
        episode_id=instance.begun.instance_id,
        outcome=_OF_INSTANCES[finished.status],
        error_class=finished.error_class,
        error_detail=finished.error_detail,
        result=_results(instance),
        is_called_off=_is_called_off(finished),
    )


def result_of(converged: EpisodeConverged | None) -> msgspec.Raw:
    """Return what an episode brought, for the steps after its own; `null`: it found nothing out."""
    if converged is None or converged.result != NOTHING:
        return NOTHING if converged is None else converged.result
    said = {
        "classification": unraw(converged.classification),
        "confidence": converged.confidence,
        "summary": converged.summary,
    }
    return raw(said)


def told_of(opened: EpisodeOpened) -> StepDone | None:
    """Return what tells an instance that the episode of one of its steps has ended.

    None if the episode is no step of a workflow.
    """
    trigger = opened.trigger
    if not isinstance(trigger, WorkflowTrigger):
        return None
    return StepDone(
        workflow=trigger.workflow_id,
        instance_id=trigger.workflow_instance_id,
        step=trigger.workflow_step_id,
        item=trigger.item,
        attempt=trigger.attempt,
        episode_id=opened.episode_id,
        is_compensation=trigger.is_compensation,
    )


def _is_called_off(finished: WorkflowFinished) -> bool:
    # One that fails may do so with any error class; one that is canceled, only with ours.
    return finished.status is WorkflowStatus.CANCELED and finished.error_class == CALLED_OFF


def _results(instance: Instance) -> msgspec.Raw:
    """Return the results of the last steps: those that nothing depends on."""
    needed = {each for spec in instance.specs.values() for each in spec.depends_on}
    last = instance.specs.keys() - needed
    return raw({name: instance.steps[name].result(instance.specs[name]) for name in last})
