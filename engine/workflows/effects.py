"""The effects of an instance's newest commit, as data; and when a result is reused. Pure.

Before an item starts for the first time, a key is looked up for equal work (same task, input and
overrides). The journal of the episode that it names decides: the key can save work, and never make
a wrong result count. What was found is recorded before anything follows from it, so after a crash
the next node looks again.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from engine.app.triggers import entity_id
from engine.app.workflow import STEP_TIMEOUT, depths
from engine.episodes.episode import Episode, fold
from engine.workflows.budget import adapting, capped, may_begin, most_of, shares
from engine.workflows.decide import abort_at, undoing_deadline
from engine.workflows.instance import (
    INSTANCE_ENDED,
    HeldSubject,
    Instance,
    Place,
    ResultLookedUp,
    StepItem,
    attempt_key,
    held_subject,
    reuse_key,
)
from engine.workflows.start import SubStart
from engine.workflows.steps import deadline_of, result_of, waits_for_recall
from streams.json import JsonObject, raw, unraw
from streams.model.commands import Cancel, CancelWorkflow, StepDone
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    StepBegun,
    StepEnded,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowFinished,
)
from streams.model.triggers import Mode, Overrides, WorkflowTrigger, requester
from streams.model.workflows import ParentStep, StepOutcome, StepStatus, Task, WorkflowSpec
from streams.ports.log import Recorded


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of an item: equal work has the same key."""

    task: Task
    given: msgspec.Raw
    """Its input, a JSON object."""
    mode: Mode
    overrides: Overrides | None
    """Of a dry run."""

    def key(self, stack: str) -> str:
        """Return the key of equal work in the stack of this name."""
        return reuse_key(
            stack=stack, task=self.task, given=self.given, mode=self.mode, overrides=self.overrides
        )


class LookUpResult(msgspec.Struct, frozen=True, kw_only=True):
    """Look up whether an earlier result can be reused for an item."""

    step: str
    item: int
    work: StepWork
    reuse_s: float
    """Oldest end of the episode, in seconds."""


class KeepResult(msgspec.Struct, frozen=True, kw_only=True):
    """Store which episode has done this work."""

    work: StepWork
    episode_id: str
    ttl_s: int


def recalls(instance: Instance) -> Iterator[LookUpResult]:
    """Yield the look-ups of all items, whatever the newest commit has."""
    for name, step in instance.steps.items():
        spec = instance.specs[name]
        if step.inputs is None or not instance.goes_on:
            continue
        waits = [n for n, item in enumerate(step.items) if waits_for_recall(spec, item)]
        # What cannot begin is looked up once it can.
        ready = len(shares(instance, most_of(spec), count=len(waits)))  # guard: looked-up-as-begun
        for number in waits[:ready]:
            if work := _work(instance, (name, number)):
                yield LookUpResult(step=name, item=number, work=work, reuse_s=spec.reuse_s)


def keeps(instance: Instance) -> Iterator[KeepResult]:
    """Yield what the newest commit stores for reuse."""
    for event in instance.newest:
        match event:
            case StepEnded(outcome=StepOutcome.DONE, step=step, item=item, episode_id=id_) if id_:
                reuse_s, work = instance.specs[step].reuse_s, _work(instance, (step, item))
                if reuse_s and work:
                    yield KeepResult(work=work, episode_id=id_, ttl_s=math.ceil(reuse_s))
            case _:
                pass


def recalled(
    recall: LookUpResult, records: Sequence[Recorded], *, stack: str, at: datetime
) -> ResultLookedUp:
    """Return the result of a look-up, from the journal of the episode that the key names."""
    episode, ended_at = fold(records), _ended_at(records)
    done, is_well = _work_of(episode.opened), _ended_well(episode)
    is_old = ended_at is None or ended_at + timedelta(seconds=recall.reuse_s) < at
    # guard: same-item-stands
    if done is None or is_old or not is_well or done.key(stack) != recall.work.key(stack):
        return ResultLookedUp(step=recall.step, item=recall.item)
    assert episode.opened is not None, "its work is known"
    return ResultLookedUp(
        step=recall.step,
        item=recall.item,
        episode_id=episode.opened.episode_id,
        result=result_of(episode.converged),
    )


def _work(instance: Instance, place: Place) -> StepWork | None:
    step, number = place
    task, inputs = instance.specs[step].task, instance.steps[step].inputs
    if task is None or inputs is None:
        return None
    overrides = instance.overrides(step, task.overrides)
    return StepWork(task=task, given=inputs[number], mode=instance.begun.mode, overrides=overrides)


def _work_of(opened: EpisodeOpened | None) -> StepWork | None:
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
    return StepWork(task=task, given=given, mode=opened.mode, overrides=opened.overrides)


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


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order."""

    recalls: tuple[LookUpResult, ...] = ()
    """Look-ups before items start. They follow from the whole state: the newest commit may have
    only some of the results."""
    keeps: tuple[KeepResult, ...] = ()
    opens: tuple[EpisodeOpened, ...] = ()
    starts: tuple[SubStart, ...] = ()
    cancels: tuple[Cancel, ...] = ()
    sub_cancels: tuple[CancelWorkflow, ...] = ()
    wake_at: datetime | None = None
    """When to send `Advance`, replacing an earlier time; None: not needed."""
    parent: StepDone | None = None
    """The report to the parent instance that this one has ended."""
    releases: HeldSubject | None = None
    """The subject whose key this instance, which has ended, may stand in."""


def follow_up(instance: Instance) -> Effects:
    """Return the effects of the newest commit of `instance`."""
    if instance.started is None:
        return Effects()
    has_ended = any(isinstance(event, WorkflowFinished) for event in instance.newest)
    held = held_subject(instance.started)
    canceled = list(_canceled(instance))
    return Effects(
        recalls=tuple(recalls(instance)),
        keeps=tuple(keeps(instance)),
        opens=tuple(_opened(instance)),
        starts=tuple(_subs(instance)),
        cancels=tuple(each for each in canceled if isinstance(each, Cancel)),
        sub_cancels=tuple(each for each in canceled if isinstance(each, CancelWorkflow)),
        wake_at=wake_at(instance),
        parent=_to_parent(instance) if has_ended else None,
        releases=held if has_ended else None,
    )


def wake_at(instance: Instance, *, but: Container[Place] = ()) -> datetime | None:
    """Return when something is due next, `but` for items that cannot start; None: never."""
    if instance.phase in INSTANCE_ENDED or instance.started is None:
        return None
    return min(_due_times(instance, but), default=None)


def may_wake(spec: WorkflowSpec) -> bool:
    """Return whether anything about an instance of `spec` can be due by itself."""
    return bool(spec.timeout_s) or any(
        step.timeout_s or step.approval_expires_s or step.on_failure.attempts_max > 1
        for step in spec.steps
    )


def _due_times(instance: Instance, but: Container[Place]) -> Iterator[datetime]:
    if (deadline := abort_at(instance)) is not None:
        yield deadline
    held = _held_by_dollars(instance)
    for place, item in instance.items():
        if (deadline := deadline_of(instance, place, item)) is not None:
            yield deadline
        if item.status is not StepStatus.RETRYING or item.retry_at is None or place in but:
            continue
        if place[0] not in held:  # guard: dollars-come-with-an-end
            yield item.retry_at
    for place, undoing in instance.undoings.items():
        deadline = undoing_deadline(instance, place, undoing)
        if undoing.ended is None and deadline is not None:
            yield deadline
        if undoing.ended is not None and undoing.ended.retry_at is not None:
            yield undoing.ended.retry_at


def _held_by_dollars(instance: Instance) -> set[str]:
    """Return the steps whose next attempts wait for the end of others, which brings dollars."""
    if not instance.begun.budget_usd:
        return set()
    prepared = (name for name, step in instance.steps.items() if step.inputs is not None)
    return {name for name in prepared if not may_begin(instance, name)}  # guard: preparing-is-free


def _opened(instance: Instance) -> Iterator[EpisodeOpened]:
    numbers = depths({name: spec.depends_on for name, spec in instance.specs.items()})
    for event in instance.newest:
        match event:
            case StepBegun(step=step, item=item):
                task, given = instance.specs[step].task, _input(instance, (step, item))
            case CompensationBegun(step=step, item=item):
                task, given = instance.specs[step].compensation, _to_undo(instance, (step, item))
            case _:
                continue
        if task is not None:
            yield _episode(instance, event, task, given, step_no=numbers[step])


def _episode(
    instance: Instance,
    event: StepBegun | CompensationBegun,
    task: Task,
    given: JsonObject,
    *,
    step_no: int,
) -> EpisodeOpened:
    begun = instance.begun
    trigger = _trigger(instance, event, given, subject_key=task.subject_key, step_no=step_no)
    return EpisodeOpened(
        episode_id=event.episode_id,
        actor_id=task.actor_id,
        expectation_id=task.expectation_id,
        trigger=trigger,
        dedupe_key=_key(instance, event),
        budget=capped(task.budget, event.budget_usd),  # guard: attempt-within-its-share
        spec_rev=task.spec_rev,
        revision=task.revision,
        subject_kind=task.subject_key,
        mode=begun.mode,
        overrides=instance.overrides(event.step, task.overrides),
        priority=task.priority,
        log_strategy=task.log_strategy,
        public_events=task.public_events,  # guard: step-episode-publishes-events
        service_level=task.service_level,  # guard: step-episode-keeps-level
        # guard: step-episode-knows-bounds
        adaptive_budget=adapting(task, event.budget_usd),
    )


def _subs(instance: Instance) -> Iterator[SubStart]:
    begun = instance.begun
    numbers = depths({name: spec.depends_on for name, spec in instance.specs.items()})
    for event in instance.newest:
        if not isinstance(event, StepBegun) or instance.specs[event.step].task is not None:
            continue
        given = _input(instance, (event.step, event.item))
        number = numbers[event.step]
        yield SubStart(
            workflow=instance.specs[event.step].workflow,
            instance_id=event.episode_id,
            trigger=_trigger(instance, event, given, subject_key="", step_no=number),
            dedupe_key=_key(instance, event),
            parent=ParentStep(
                workflow=begun.spec.name,
                instance_id=begun.instance_id,
                step=event.step,
                item=event.item,
                attempt=event.attempt,
            ),
            depth=begun.depth + 1,
            mode=begun.mode,
            overrides=instance.overrides(event.step),
        )


def _trigger(
    instance: Instance,
    event: StepBegun | CompensationBegun,
    given: JsonObject,
    *,
    subject_key: str,
    step_no: int,
) -> WorkflowTrigger:
    return WorkflowTrigger(
        workflow_instance_id=instance.begun.instance_id,
        workflow_step_id=event.step,
        workflow_id=instance.begun.spec.name,
        workflow_step_no=step_no,
        item=event.item,
        attempt=event.attempt,
        is_compensation=isinstance(event, CompensationBegun),
        input=given,
        budget_usd=event.budget_usd,
        entity_id=entity_id(given, subject_key),
        requested_by=requester(instance.begun.trigger),
        hops=instance.begun.trigger.hops,
    )


def _canceled(instance: Instance) -> Iterator[Cancel | CancelWorkflow]:
    """Yield the cancellations of what runs in vain."""
    for event in instance.newest:
        match event:
            case WorkflowAborted(error_class=reason) | WorkflowCancelAsked(reason=reason):
                for place, item in instance.with_status(StepStatus.RUNNING):
                    yield _cancel(instance, place, item, reason)
            case StepEnded(episode_id=id_) if id_ and event.error_class == STEP_TIMEOUT:
                place = event.step, event.item
                yield _cancel(instance, place, StepItem(episode_id=id_), STEP_TIMEOUT)
            case CompensationEnded(episode_id=id_) if event.error_class == STEP_TIMEOUT:
                undo = instance.specs[event.step].compensation
                assert undo is not None, "only a compensation begins one"
                yield _cancel_episode(instance, undo, id_, STEP_TIMEOUT)
            case _:
                pass


def _cancel(
    instance: Instance, place: Place, item: StepItem, reason: str
) -> Cancel | CancelWorkflow:
    spec = instance.specs[place[0]]
    if spec.task is not None:
        return _cancel_episode(instance, spec.task, item.episode_id, reason)
    by = f"workflow {instance.begun.spec.name}"
    return CancelWorkflow(workflow=spec.workflow, instance_id=item.episode_id, by=by, reason=reason)


def _cancel_episode(instance: Instance, task: Task, episode_id: str, reason: str) -> Cancel:
    by = f"workflow {instance.begun.spec.name}"
    return Cancel(actor_id=task.actor_id, episode_id=episode_id, by=by, reason=reason)


def _to_parent(instance: Instance) -> StepDone | None:
    parent = instance.begun.parent
    if parent is None:
        return None
    return StepDone(
        workflow=parent.workflow,
        instance_id=parent.instance_id,
        step=parent.step,
        item=parent.item,
        attempt=parent.attempt,
        episode_id=instance.begun.instance_id,
    )


def _key(instance: Instance, event: StepBegun | CompensationBegun) -> str:
    return attempt_key(
        instance.begun.instance_id,
        event.step,
        event.item,
        event.attempt,
        is_compensation=isinstance(event, CompensationBegun),
    )


def _input(instance: Instance, place: Place) -> JsonObject:
    step, number = place
    inputs = instance.steps[step].inputs
    assert inputs is not None, "a step is prepared before it begins"
    given: JsonObject = unraw(inputs[number])
    return given


def _to_undo(instance: Instance, place: Place) -> JsonObject:
    step, number = place
    result = unraw(instance.steps[step].items[number].result)
    return {"input": _input(instance, place), "result": result}
