"""Whether the result of an earlier episode stands for an item, so that nothing runs for it. Pure.

A step says how old such a result may be. When an episode of it has ended well, a key in the gates
names that episode for as long; the journal has all else. So before an item is begun for the first
time it is looked whether a key stands for its work: same task, equal input, and of a dry run the
same overrides. The journal of the episode that the key names then says whether that may be: what
stands in the gates can save work, and never make a wrong result stand.

What was found is recorded (`StepReused`, or `StepBegun` where nothing was) before anything comes of
it, and an item that nobody has looked for is recorded as prepared only. So a crash on the way has
whoever comes next look again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from engine.episode import Episode, fold
from engine.workflows.commands import Recalled
from engine.workflows.endings import result_of
from engine.workflows.ids import reuse_key
from engine.workflows.instance import Instance, Place
from engine.workflows.steps import waits_for_recall
from streams.events import EndStatus, EpisodeFinished, EpisodeOpened, StepEnded
from streams.json import raw
from streams.log import Recorded
from streams.triggers import Mode, Overrides, WorkflowTrigger
from streams.workflows import StepOutcome, Task


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What an item is about to do, or has done: equal work has the same key."""

    task: Task
    given: msgspec.Raw
    """Its input, a JSON object."""
    mode: Mode
    overrides: Overrides | None
    """Of a dry run."""

    def key(self, stack: str) -> str:
        """Return what all episodes that do this have in common, in the stack of this name."""
        return reuse_key(
            stack=stack, task=self.task, given=self.given, mode=self.mode, overrides=self.overrides
        )


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """Look whether a result of the same work may stand for an item's."""

    step: str
    item: int
    work: Work
    reuse_s: float
    """Longest that the episode may have ended ago, in seconds."""


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """Remember which episode has done this work."""

    work: Work
    episode_id: str
    ttl_s: int


def recalls(instance: Instance) -> Iterator[Recall]:
    """Yield what is to be looked for: of all items, whatever the newest commit says."""
    for name, step in instance.steps.items():
        spec = instance.specs[name]
        if step.inputs is None or not instance.goes_on:
            continue
        for number, item in enumerate(step.items):
            if waits_for_recall(spec, item) and (work := _work(instance, (name, number))):
                yield Recall(step=name, item=number, work=work, reuse_s=spec.reuse_s)


def keeps(instance: Instance) -> Iterator[Keep]:
    """Yield what is to be remembered of the newest commit."""
    for event in instance.newest:
        match event:
            case StepEnded(outcome=StepOutcome.DONE, step=step, item=item, episode_id=id_) if id_:
                reuse_s, work = instance.specs[step].reuse_s, _work(instance, (step, item))
                if reuse_s and work:
                    yield Keep(work=work, episode_id=id_, ttl_s=math.ceil(reuse_s))
            case _:
                pass


def recalled(recall: Recall, records: Sequence[Recorded], *, stack: str, at: datetime) -> Recalled:
    """Return what came of looking for a result.

    Args:
        recall: what is looked for.
        records: the journal of the episode that the gates name; none: they name no episode.
        stack: the stack's name.
        at: now.
    """
    episode, ended_at = fold(records), _ended_at(records)
    done, is_well = _work_of(episode.opened), _ended_well(episode)
    is_old = ended_at is None or ended_at + timedelta(seconds=recall.reuse_s) < at
    if done is None or is_old or not is_well or done.key(stack) != recall.work.key(stack):
        return Recalled(step=recall.step, item=recall.item)
    assert episode.opened is not None, "its work is known"
    return Recalled(
        step=recall.step,
        item=recall.item,
        episode_id=episode.opened.episode_id,
        result=result_of(episode.converged),
    )


def _work(instance: Instance, place: Place) -> Work | None:
    """Return what an item does; None of one that another workflow is run for."""
    step, number = place
    task, inputs = instance.specs[step].task, instance.steps[step].inputs
    if task is None or inputs is None:
        return None
    overrides = instance.overrides(step, task.overrides)
    return Work(task=task, given=inputs[number], mode=instance.begun.mode, overrides=overrides)


def _work_of(opened: EpisodeOpened | None) -> Work | None:
    """Return what an episode has done; None if it is no step of a workflow."""
    if opened is None or not isinstance(opened.trigger, WorkflowTrigger):
        return None
    task = Task(
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        budget=opened.budget,
        spec_rev=opened.spec_rev,
        revision=opened.revision,
    )
    given = raw(opened.trigger.input)
    return Work(task=task, given=given, mode=opened.mode, overrides=opened.overrides)


def _ended_well(episode: Episode) -> bool:
    finished = episode.finished
    return finished is not None and finished.status is EndStatus.DONE


def _ended_at(records: Sequence[Recorded]) -> datetime | None:
    ends = (
        record.commit.at
        for record in records
        if any(isinstance(event, EpisodeFinished) for event in record.commit.events)
    )
    return next(ends, None)
