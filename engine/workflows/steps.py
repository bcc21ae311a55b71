"""The steps of an instance: their inputs, starts, ends and deadlines. Pure if users' functions are.

`input`, `when` and `for_each` get copies of recorded data only: the trigger, and the results of the
steps that theirs depends on; which others are done would be chance. This is the one place among the
rules that catches any exception of what it calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from engine.app.workflow import STEP_TIMEOUT, Prior, Workflow, WorkflowStep, ancestors, remedy
from engine.app.workflow_plan import DEPTH_MAX
from engine.episodes.episode import Episode
from engine.errors import BadInput, Unencodable
from engine.validation import encode
from engine.waits.approval import expiry_of
from engine.workflows.budget import most_of, shares
from engine.workflows.instance import (
    CALLED_OFF,
    AttemptEnded,
    Instance,
    Place,
    ResultLookedUp,
    StepItem,
    attempt_id,
    attempt_key,
    denial_of,
)
from streams.json import NOTHING, raw, unraw
from streams.model.commands import StepDone
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    StepApprovalAsked,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowAborted,
    WorkflowEvent,
    WorkflowFinished,
)
from streams.model.triggers import Trigger, WorkflowTrigger, requester
from streams.model.waits import Approval
from streams.model.workflows import (
    Remedy,
    SkipReason,
    StepOutcome,
    StepSpec,
    StepStatus,
    WorkflowStatus,
)

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


WIDTH_MAX: Final = 1_000
"""Most items of one step."""

INPUTS_BYTES_MAX: Final = 512 * 1024
"""Largest sum of all inputs of one step, as JSON: they are in one commit."""

DETAIL_CHARS_MAX: Final = 4_000
"""Most of an error's text that the journal keeps."""

_trigger: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)


TOO_DEEP: Final = "too_deep"
"""Error class of a step whose workflow is nested deeper than `DEPTH_MAX`."""


_MAY_BEGIN: Final = frozenset({StepStatus.PENDING, StepStatus.RETRYING})


def end_of_episode(episode: Episode) -> AttemptEnded | None:
    """Return how `episode` ended as an attempt; None: it has not, or is none."""
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
        # guard: unknown-cost-at-most
        spent_usd=episode.usd_used + episode.usd_reserved,
        is_compensation=opened.trigger.is_compensation,
    )


def end_of_instance(instance: Instance) -> AttemptEnded | None:
    """Return how `instance` ended as an attempt; None: it has not, or is none."""
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
        spent_usd=instance.spent_usd,
        is_called_off=_is_called_off(finished),  # guard: called-off-start-made
    )


def result_of(converged: EpisodeConverged | None) -> msgspec.Raw:
    """Return the result of an episode, for later steps; `null`: it has none."""
    if converged is None or converged.result != NOTHING:
        return NOTHING if converged is None else converged.result
    said = {
        "classification": unraw(converged.classification),
        "confidence": converged.confidence,
        "summary": converged.summary,
    }
    return raw(said)


def told_of(episode_id: str, trigger: WorkflowTrigger) -> StepDone:
    """Return the report that the episode of a step has ended."""
    return StepDone(
        workflow=trigger.workflow_id,
        instance_id=trigger.workflow_instance_id,
        step=trigger.workflow_step_id,
        item=trigger.item,
        attempt=trigger.attempt,
        episode_id=episode_id,
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


def asked_for(instance: Instance, step: WorkflowStep) -> tuple[msgspec.Raw, ...] | None:
    """Return the inputs of `step`, one per item; None: `when` is false. May raise `BadInput`."""
    direct = instance.specs[step.name].depends_on
    return inputs_of(step, instance.begun.trigger, prior_of(instance, step.name), direct=direct)


def inputs_of(
    step: WorkflowStep, trigger: Trigger, prior: Prior, *, direct: Sequence[str]
) -> tuple[msgspec.Raw, ...] | None:
    """Return what `asked_for` does, of a step after `prior`; `direct` are the steps before it."""
    if step.when is not None and not _says_yes(_call("when", step.when, trigger, prior)):
        return None
    if step.for_each is not None:
        return _items(_call("for_each", step.for_each, trigger, prior))
    if step.input is not None:
        return _encoded([_object("input", _call("input", step.input, trigger, prior))])
    said = {each: prior[each] for each in direct}
    return _encoded([{"trigger": trigger.payload, "prior": said}])


def prior_of(instance: Instance, step: str) -> Prior:
    """Return the results of all steps that `step` depends on."""
    graph = {name: spec.depends_on for name, spec in instance.specs.items()}
    return {
        name: instance.steps[name].result(instance.specs[name])
        for name in sorted(ancestors(graph, step))  # guard: step-sees-dependencies-only
    }


def _call(name: str, function: Callable[[Trigger, Prior], object], *given: Any) -> object:  # noqa: ANN401 - trigger and prior
    trigger, prior = given
    try:
        # Copies, so that nothing that a function does to them is seen by anyone else.
        copied = msgspec.json.decode(msgspec.json.encode(prior))
        # guard: step-functions-get-copies
        return function(_trigger.decode(msgspec.json.encode(trigger)), copied)
    except BaseException as error:
        told = f"{name}: {type(error).__name__}: {error}"[:DETAIL_CHARS_MAX]
        raise BadInput(told.encode(errors="replace").decode()) from error


def _says_yes(said: object) -> bool:
    if not isinstance(said, bool):
        raise BadInput(f"when: returned {_name(said)}, not True or False")
    return said


def _items(listed: object) -> tuple[msgspec.Raw, ...]:
    if not isinstance(listed, list | tuple):
        raise BadInput(f"for_each: returned {_name(listed)}, not a list")
    if len(listed) > WIDTH_MAX:  # guard: step-width-max
        raise BadInput(f"for_each: {len(listed):,} items, the limit is {WIDTH_MAX:,}")
    return _encoded([each if isinstance(each, dict) else {"item": each} for each in listed])


def _object(name: str, said: object) -> Mapping[str, object]:
    if not isinstance(said, dict):
        raise BadInput(f"{name}: returned {_name(said)}, not a dict")
    return said


def _encoded(objects: list[Mapping[str, object]]) -> tuple[msgspec.Raw, ...]:
    try:
        inputs = tuple(encode(each, what="input") for each in objects)
    except Unencodable as error:
        raise BadInput(str(error)) from error
    size_bytes = sum(len(bytes(each)) for each in inputs)
    if size_bytes > INPUTS_BYTES_MAX:
        raise BadInput(
            f"inputs of {size_bytes:,} bytes, the limit is {INPUTS_BYTES_MAX:,};"
            " keep data elsewhere and hand on references"
        )
    return inputs


def _name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules need besides the journal."""

    workflow: Workflow
    """With the steps' functions; checked by `problem_of_code`."""
    stack: str
    """The stack's name."""
    closed: frozenset[str] = frozenset()
    """Workflows that cannot start here now. Steps that run one wait."""
    is_held: bool = False
    """Whether the instance waits for the end of another one of its subject."""


def begin_ready(instance: Instance, code: Code, *, at: datetime) -> tuple[WorkflowEvent, ...]:
    """Return the start, or next attempt, of the first step that is due; empty: none."""
    if code.is_held:  # guard: held-instance-begins-nothing
        return ()
    for name, step in instance.steps.items():
        if instance.specs[name].workflow in code.closed:  # guard: beginless-step-waits
            continue
        due = [number for number, item in enumerate(step.items) if _is_due(item, at)]
        if step.inputs is not None:
            spec, items = instance.specs[name], step.items
            due = [number for number in due if not waits_for_recall(spec, items[number])]
            if begun := tuple(_begun(instance, name, due, code=code)):
                return begun
            continue
        if due and _may_begin(instance, name):
            return _prepare(instance, name, code, at=at)
    return ()


def waiting(instance: Instance, closed: Container[str], *, at: datetime) -> Iterator[Place]:
    """Yield the items that would start if their workflow were not `closed`."""
    for name, step in instance.steps.items():
        may_begin = step.inputs is not None or _may_begin(instance, name)
        if not (instance.goes_on and may_begin and instance.specs[name].workflow in closed):
            continue
        yield from ((name, number) for number, item in enumerate(step.items) if _is_due(item, at))


def prepared(
    instance: Instance, name: str, inputs: tuple[msgspec.Raw, ...], *, code: Code
) -> tuple[WorkflowEvent, ...]:
    """Return the event that a step runs with `inputs`."""
    settled, first = StepPrepared(step=name, inputs=inputs), instance.steps[name].items[0]
    spec = instance.specs[name]
    # guard: approved-not-begun-where-not
    if waits_for_recall(spec, first) or spec.workflow in code.closed:
        return (settled,)
    return settled, *_begun(instance, name, range(len(inputs)), code=code)


def waits_for_recall(spec: StepSpec, item: StepItem) -> bool:
    """Return whether an item waits for a look-up of earlier results."""
    # guard: run-item-not-earlier-done
    return bool(spec.reuse_s) and not item.episode_id and item.status in _MAY_BEGIN


def recalled(instance: Instance, said: ResultLookedUp, *, code: Code) -> tuple[WorkflowEvent, ...]:
    """Return the event of a look-up: the item is done, or starts."""
    step = instance.steps.get(said.step)
    if step is None or step.inputs is None or not 0 <= said.item < len(step.items):
        return ()
    item, spec = step.items[said.item], instance.specs[said.step]
    if not waits_for_recall(spec, item):
        return ()
    if not said.episode_id:
        return tuple(_begun(instance, said.step, [said.item], code=code))
    return (
        StepReused(step=said.step, item=said.item, episode_id=said.episode_id, result=said.result),
    )


def attempt_ended(
    instance: Instance, ended: StepEnded, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    """Return the events of the end of an attempt."""
    if ended.outcome is StepOutcome.DONE or not instance.goes_on:
        return (ended,)
    if ended.outcome is StepOutcome.CANCELED:  # It was called off: it is begun when it can be.
        return ended, StepPostponed(
            step=ended.step, item=ended.item, attempt=ended.attempt, retry_at=at
        )
    item = instance.steps[ended.step].items[ended.item]
    tries = ended.attempt - item.attempts_before
    why = ended.error_class, ended.error_detail
    return ended, *_remedied(instance, (ended.step, ended.item), why, tries=tries, at=at)


def denied(instance: Instance, event: StepDenied, *, at: datetime) -> tuple[WorkflowEvent, ...]:
    """Return the events of a denied step."""
    return event, *_remedied(instance, (event.step, 0), denial_of(event), tries=0, at=at)


def overdue(instance: Instance, *, at: datetime) -> tuple[WorkflowEvent, ...]:
    """Return the events of the first item that timed out; empty: none."""
    for place, item in instance.items():
        deadline = deadline_of(instance, place, item)
        if deadline is None or deadline > at:
            continue
        step, number = place
        if item.status is StepStatus.AWAITING_APPROVAL:
            return denied(instance, StepDenied(step=step, by="", is_expiry=True), at=at)
        ended = StepEnded(
            step=step,
            item=number,
            attempt=item.attempt,
            episode_id=item.episode_id,
            outcome=StepOutcome.FAILED,
            error_class=STEP_TIMEOUT,
            error_detail=f"after {instance.specs[step].timeout_s:g} s",
            # It goes on until it is canceled, and nobody waits for that.
            spent_usd=instance.spent_usd + item.budget_usd,  # guard: given-up-attempt-at-most
        )
        return attempt_ended(instance, ended, at=at)
    return ()


def deadline_of(instance: Instance, place: Place, item: StepItem) -> datetime | None:
    """Return until when an item may stay as it is; None: no limit."""
    name, _ = place
    timeout_s = instance.specs[name].timeout_s
    asked = instance.steps[name].asked
    if item.status is StepStatus.AWAITING_APPROVAL and asked is not None:
        return asked.approval.expires_at
    if item.status is StepStatus.RUNNING and item.begun_at is not None and timeout_s:
        return item.begun_at + timedelta(seconds=timeout_s)
    return None


def _may_begin(instance: Instance, name: str) -> bool:
    # guard: step-after-dependencies
    return all(instance.steps[each].is_settled for each in instance.specs[name].depends_on)


def _is_due(item: StepItem, at: datetime) -> bool:
    if item.status is StepStatus.RETRYING:
        return item.retry_at is None or item.retry_at <= at  # guard: attempt-waits-its-time
    return item.status is StepStatus.PENDING


def _prepare(
    instance: Instance, name: str, code: Code, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    spec = instance.specs[name]
    if spec.workflow and instance.begun.depth >= DEPTH_MAX:  # guard: workflow-depth-max
        problem = f"{DEPTH_MAX} workflows within one another are the limit"
        return _unprepared(instance, name, TOO_DEEP, problem, at=at)
    try:
        inputs = asked_for(instance, code.workflow.steps[name])
    except BadInput as error:
        return _unprepared(instance, name, error.error_class, str(error), at=at)
    if inputs is None:
        return (StepSkipped(step=name, item=0, reason=SkipReason.CONDITION),)
    if spec.requires_approval and inputs:  # guard: step-awaits-approval
        requested_by = requester(instance.begun.trigger)
        return (_approval_asked(spec, inputs, at=at, requested_by=requested_by),)
    return prepared(instance, name, inputs, code=code)


def _unprepared(
    instance: Instance, name: str, error_class: str, detail: str, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    ended = StepEnded(
        step=name,
        item=0,
        attempt=instance.steps[name].items[0].attempt + 1,
        outcome=StepOutcome.FAILED,
        error_class=error_class,
        error_detail=detail,
        spent_usd=instance.spent_usd,
    )
    return attempt_ended(instance, ended, at=at)


def _approval_asked(
    spec: StepSpec, inputs: tuple[msgspec.Raw, ...], *, at: datetime, requested_by: str
) -> StepApprovalAsked:
    task = spec.task
    runs = f"{task.actor_id}/{task.expectation_id}" if task else f"workflow {spec.workflow}"
    times = f", {len(inputs):,} times" if spec.fans_out else ""
    approval = Approval(
        plan_hash=hashlib.sha256(raw([runs, inputs])).hexdigest(),
        summary=f"step {spec.id}: {runs}{times}",
        approvers=spec.approvers,
        quorum=spec.quorum,
        barred="" if spec.requester_may_approve else requested_by,
        expires_at=expiry_of(spec.approval_expires_s, at=at),
        editable=True,  # Nothing but the step looks at its inputs.
    )
    return StepApprovalAsked(step=spec.id, inputs=inputs, approval=approval)


def _begun(
    instance: Instance, name: str, numbers: Iterable[int], *, code: Code
) -> Iterable[StepBegun]:
    """Yield the beginnings of those items for which the instance has the dollars."""
    spec, step = instance.specs[name], instance.steps[name]
    due = [*numbers]
    found = shares(instance, most_of(spec), count=len(due))
    for number, share in zip(due, found, strict=False):
        # Of a step that is being prepared, all items go on from the one that it had.
        before = step.items[number] if step.inputs is not None else step.items[0]
        attempt = before.attempt + 1
        key = attempt_key(instance.begun.instance_id, name, number, attempt)
        id_ = attempt_id(stack=code.stack, task=spec.task, workflow=spec.workflow, key=key)
        yield StepBegun(step=name, item=number, attempt=attempt, episode_id=id_, budget_usd=share)


def _remedied(
    instance: Instance, place: Place, why: tuple[str, str], *, tries: int, at: datetime
) -> tuple[WorkflowEvent, ...]:
    """Return the event that an item's policy gives after a failure for the reason `why`."""
    step, number = place
    item = instance.steps[step].items[number]
    seed = attempt_key(instance.begun.instance_id, step, number, item.attempts_before + tries)
    policy, (error_class, detail) = instance.specs[step].on_failure, why
    match remedy(policy, error_class=error_class, attempts=tries, at=at, seed=seed):
        case datetime() as retry_at:
            attempt = item.attempts_before + tries
            return (StepPostponed(step=step, item=number, attempt=attempt, retry_at=retry_at),)
        case Remedy.CONTINUE:
            return (StepSkipped(step=step, item=number, reason=SkipReason.FAILED),)
        case Remedy.PAUSE:
            return (StepPaused(step=step, item=number),)
        case Remedy.ABORT:
            return (WorkflowAborted(error_class=error_class, error_detail=detail, step=step),)
