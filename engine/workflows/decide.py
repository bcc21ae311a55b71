"""The rules for an instance: commands, and what follows by itself; and compensation. Pure.

A decision is one commit: the events of the command, and then all that follows. What does not fit
comes with the next `Advance`; so the caller repeats `Advance` until nothing follows. Ends that are
reported twice, late, or of an old attempt change nothing. Compensation undoes done items one by
one, the last first, if their step has one; a failed one does not stop the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from engine.app.workflow import STEP_TIMEOUT, remedy
from engine.errors import Refused
from engine.validation import KEPT_BYTES_MAX
from engine.waits.approval import (
    approved_by,
    changed_hash,
    end_in_words,
    is_enough,
    one_more,
    problem_of_command,
)
from engine.workflows.budget import most_of_task, shares
from engine.workflows.instance import (
    INSTANCE_ENDED,
    AttemptEnded,
    Instance,
    InstanceCommand,
    Place,
    ResultLookedUp,
    StepState,
    Undoing,
    after,
    attempt_id,
    attempt_key,
)
from engine.workflows.steps import (
    Code,
    attempt_ended,
    begin_ready,
    denied,
    overdue,
    prepared,
    recalled,
)
from streams.json import NOTHING, unraw
from streams.model.commands import (
    Advance,
    CancelWorkflow,
    DecideStep,
    ResumeWorkflow,
    Verdict,
)
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepDenied,
    StepEnded,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowResumed,
)
from streams.model.workflows import StepOutcome, StepStatus, WorkflowStatus

CANCELED: Final = "canceled"
"""Error class of an instance that a person or a program has canceled."""


COMMIT_BYTES_MAX: Final = 768 * 1024
"""Largest decision, as JSON: a commit must fit in one message, 1 MiB by the server's default. The
largest move, preparing a step for all its items, is smaller."""

MOVES_MAX: Final = 10_000
"""Most moves of one decision."""

RESULTS_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest sum of an instance's results, as JSON: all are in memory for a decision."""

RESULT_TOO_LARGE: Final = "result_too_large"
"""Error class of an attempt whose result cannot be kept."""

WORKFLOW_TIMEOUT: Final = "workflow_timeout"
"""Error class of an instance that took too long."""


FIRST_BYTES_MAX: Final = 128 * 1024
"""Largest size of decisions, as JSON, to which another is added: that one may have 768 KiB, and all
of them must fit in one message, 1 MiB by the server's default."""


def to_undo(instance: Instance) -> Sequence[Place]:
    """Return the items to compensate if the instance stops, in order."""
    done = [
        (item.done_no, place)
        for place, item in instance.with_status(StepStatus.DONE)
        if instance.specs[place[0]].compensation is not None
    ]
    return [place for _, place in sorted(done, reverse=True)]  # guard: undo-last-first


def next_undoing(instance: Instance, *, stack: str, at: datetime) -> tuple[WorkflowEvent, ...]:
    """Return the next compensation, now that nothing else runs; empty: it waits."""
    for place in to_undo(instance):
        undoing = instance.undoings.get(place)
        if undoing is None:
            return (_begun(instance, place, attempt=1, stack=stack),)
        if undoing.ended is None:
            return _overdue(instance, place, undoing, at=at)
        if undoing.ended.retry_at is not None:
            if undoing.ended.retry_at > at:
                return ()
            return (_begun(instance, place, attempt=undoing.attempt + 1, stack=stack),)
    return (_end_of_undoing(instance),)


def undoing_ended(
    instance: Instance,
    place: Place,
    undoing: Undoing,
    *,
    outcome: StepOutcome,
    error_class: str,
    error_detail: str,
    spent_usd: Decimal,
    at: datetime,
) -> CompensationEnded:
    """Return the event of the end of a compensation, with the time of a next attempt, if any."""
    retry_at = None
    if outcome is not StepOutcome.DONE:
        policy, seed = instance.specs[place[0]].on_failure, undoing.episode_id
        answer = remedy(policy, error_class=error_class, attempts=undoing.attempt, at=at, seed=seed)
        retry_at = answer if isinstance(answer, datetime) else None
    return CompensationEnded(
        step=place[0],
        item=place[1],
        attempt=undoing.attempt,
        episode_id=undoing.episode_id,
        outcome=outcome,
        error_class=error_class,
        error_detail=error_detail,
        retry_at=retry_at,
        spent_usd=instance.spent_usd + spent_usd,
    )


def undoing_deadline(instance: Instance, place: Place, undoing: Undoing) -> datetime | None:
    """Return until when the newest compensation may take; None: no limit."""
    timeout_s = instance.specs[place[0]].timeout_s
    return undoing.begun_at + timedelta(seconds=timeout_s) if timeout_s else None


def _overdue(
    instance: Instance, place: Place, undoing: Undoing, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    deadline = undoing_deadline(instance, place, undoing)
    if deadline is None or deadline > at:
        return ()
    ended = undoing_ended(
        instance,
        place,
        undoing,
        outcome=StepOutcome.FAILED,
        error_class=STEP_TIMEOUT,
        error_detail=f"after {instance.specs[place[0]].timeout_s:g} s",
        spent_usd=undoing.budget_usd,
        at=at,
    )
    return (ended,)


def _begun(instance: Instance, place: Place, *, attempt: int, stack: str) -> CompensationBegun:
    step, item = place
    key = attempt_key(instance.begun.instance_id, step, item, attempt, is_compensation=True)
    task = instance.specs[step].compensation
    assert task is not None, "only a step that can be undone is"
    # Nothing else runs, so it begins with what there is.
    (share,) = shares(instance, most_of_task(task), count=1)
    return CompensationBegun(
        step=step,
        item=item,
        attempt=attempt,
        episode_id=attempt_id(stack=stack, task=task, workflow="", key=key),
        budget_usd=share,
    )


def _end_of_undoing(instance: Instance) -> WorkflowFinished:
    failed = [
        step
        for (step, _), undoing in instance.undoings.items()
        if undoing.ended is not None and undoing.ended.outcome is not StepOutcome.DONE
    ]
    not_undone = tuple(dict.fromkeys(failed))
    if instance.aborted is not None:
        return WorkflowFinished(
            status=WorkflowStatus.FAILED,
            error_class=instance.aborted.error_class,
            error_detail=instance.aborted.error_detail,
            step=instance.aborted.step,
            not_undone=not_undone,
        )
    asked = instance.cancel_asked
    assert asked is not None, "an instance stops because it was aborted or canceled"
    why = f": {asked.reason}" if asked.reason else ""
    return WorkflowFinished(
        status=WorkflowStatus.CANCELED,
        error_class=CANCELED,
        error_detail=f"by {asked.by}{why}",
        not_undone=not_undone,
    )


def decide(
    instance: Instance, command: InstanceCommand, *, code: Code, at: datetime
) -> tuple[WorkflowEvent, ...]:
    """Return the events of one commit, to be written with the time `decided_at`; none: nothing.

    `Advance` says only that something may be due. A person's command may be `Refused`.
    """
    now = decided_at(instance, at)
    events = list(_answer(instance, command, code, at=now))
    instance = after(instance, events, at=now, version=instance.version)
    left_bytes = COMMIT_BYTES_MAX - _size_bytes(events)
    for _ in range(MOVES_MAX):
        move = _next_move(instance, code, at=now)
        left_bytes -= _size_bytes(move)
        if not move or (events and left_bytes < 0):  # guard: instance-fits-message
            break
        events += move
        instance = after(instance, move, at=now, version=instance.version)
    return tuple(events)


def decided_at(instance: Instance, at: datetime) -> datetime:
    """Return the time of a decision: `at`, but never before the last one."""
    return at if instance.at is None else max(at, instance.at)  # guard: instance-time-forward


def abort_at(instance: Instance) -> datetime | None:
    """Return when the instance times out; None: never."""
    timeout_s = instance.begun.spec.timeout_s
    if not timeout_s or instance.started_at is None or not instance.goes_on:
        return None
    return instance.started_at + timedelta(seconds=timeout_s)


def _answer(
    instance: Instance, command: InstanceCommand, code: Code, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    match command:
        case Advance():
            return ()
        case AttemptEnded(is_compensation=True):
            return _undone(instance, command, at=at)
        case AttemptEnded():
            return _ended(instance, command, at=at)
        case ResultLookedUp():
            return recalled(instance, _fitting(instance, command), code=code)
        case CancelWorkflow(by=by, reason=reason):
            return (WorkflowCancelAsked(by=by, reason=reason),) if instance.goes_on else ()
        # guard: repeated-word-recognised
        case ResumeWorkflow() | DecideStep() if command.id in instance.answers:
            return ()
        case ResumeWorkflow():
            return resumed(instance, command)
        case DecideStep():
            return _decided(instance, command, code, at=at)


def _next_move(instance: Instance, code: Code, *, at: datetime) -> tuple[WorkflowEvent, ...]:
    if instance.phase in INSTANCE_ENDED or instance.started is None:
        return ()
    if instance.goes_on:
        return (
            _finished(instance)
            or _too_late(instance, at=at)
            or overdue(instance, at=at)
            or begin_ready(instance, code, at=at)
        )
    if late := overdue(instance, at=at):
        return late
    runs = any(instance.with_status(StepStatus.RUNNING))
    # guard: undo-when-nothing-runs
    return () if runs else next_undoing(instance, stack=code.stack, at=at)


def _finished(instance: Instance) -> tuple[WorkflowEvent, ...]:
    is_done = all(step.is_settled for step in instance.steps.values())
    return (WorkflowFinished(status=WorkflowStatus.DONE),) if is_done else ()


def _too_late(instance: Instance, *, at: datetime) -> tuple[WorkflowEvent, ...]:
    deadline = abort_at(instance)
    if deadline is None or deadline > at:
        return ()
    detail = f"after {instance.begun.spec.timeout_s:g} s"
    return (WorkflowAborted(error_class=WORKFLOW_TIMEOUT, error_detail=detail),)


def _ended(instance: Instance, command: AttemptEnded, *, at: datetime) -> tuple[WorkflowEvent, ...]:
    step = instance.steps.get(command.step)
    if step is None or not 0 <= command.item < len(step.items):
        return ()
    item = step.items[command.item]
    newest = item.status, item.attempt, item.episode_id
    # guard: end-of-running-attempt
    if newest != (StepStatus.RUNNING, command.attempt, command.episode_id):
        return ()
    outcome, error_class, detail = _judged(instance, command)
    ended = StepEnded(
        step=command.step,
        item=command.item,
        attempt=command.attempt,
        episode_id=command.episode_id,
        outcome=outcome,
        error_class=error_class,
        error_detail=detail,
        result=command.result if outcome is StepOutcome.DONE else NOTHING,
        spent_usd=instance.spent_usd + command.spent_usd,
    )
    return attempt_ended(instance, ended, at=at)


def _judged(instance: Instance, command: AttemptEnded) -> tuple[StepOutcome, str, str]:
    size_bytes, room_bytes = len(bytes(command.result)), _room_bytes(instance)
    # guard: unkeepable-result-fails
    if command.outcome is StepOutcome.DONE and size_bytes > room_bytes:
        detail = f"{size_bytes:,} bytes, and there is room for {room_bytes:,}"
        return StepOutcome.FAILED, RESULT_TOO_LARGE, detail
    is_canceled = command.outcome is StepOutcome.CANCELED and not command.is_called_off
    if is_canceled and instance.goes_on:
        # By somebody else: to the instance it is a failure like any other.
        return StepOutcome.FAILED, command.error_class or CANCELED, command.error_detail
    return command.outcome, command.error_class, command.error_detail


def _fitting(instance: Instance, said: ResultLookedUp) -> ResultLookedUp:
    if len(bytes(said.result)) <= _room_bytes(instance):
        return said
    return ResultLookedUp(step=said.step, item=said.item)


def _room_bytes(instance: Instance) -> int:
    return min(KEPT_BYTES_MAX, RESULTS_BYTES_MAX - instance.results_bytes)


def _undone(
    instance: Instance, command: AttemptEnded, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    place = command.step, command.item
    match instance.undoings.get(place):
        case Undoing(ended=None, attempt=command.attempt, episode_id=command.episode_id) as undoing:
            ended = undoing_ended(
                instance,
                place,
                undoing,
                outcome=command.outcome,
                error_class=command.error_class,
                error_detail=command.error_detail,
                spent_usd=command.spent_usd,
                at=at,
            )
            return (ended,)
        case _:
            return ()


def resumed(instance: Instance, command: ResumeWorkflow) -> tuple[WorkflowEvent, ...]:
    """Return the first events of a resumption; `Refused` if nothing of the step is paused."""
    paused = {step for (step, _), _ in instance.with_status(StepStatus.PAUSED)}
    if command.step not in paused:
        names = ", ".join(sorted(paused)) or "none"
        raise Refused(f"step {command.step!r} is not paused; paused: {names}")
    event = WorkflowResumed(
        step=command.step,
        how=command.how,
        by=command.by,
        reason=command.reason,
        resume_id=command.id,
    )
    return (event,)


def step_decided(instance: Instance, command: DecideStep, *, at: datetime) -> StepApprovalAsked:
    """Return the event of a decision about a step; `Refused` if it is invalid or not needed."""
    step = instance.steps.get(command.step)
    asked = step.asked if step is not None else None
    if asked is None:
        raise Refused(_not_asked(command.step, step))
    problem = problem_of_command(asked.approval, command, at=at)
    if problem is None and command.edited_hash:
        problem = _problem_of_inputs(asked.inputs, command.edited_inputs)
    if problem is not None:
        raise Refused(problem)
    return asked


def _not_asked(name: str, step: StepState | None) -> str:
    if step is None or step.decision is None:
        return f"step {name!r} does not wait for approval"
    decision, at = step.decision, step.decided_at
    what = "approved" if isinstance(decision, StepApproved) else "denied"
    end = end_in_words(f"it was {what}", by=decision.by, at=at, reason=decision.reason)
    return f"it does not wait any more: {end}"


def _problem_of_inputs(asked: Sequence[msgspec.Raw], edited: Sequence[msgspec.Raw]) -> str | None:
    if len(edited) != len(asked):  # guard: item-count-stays
        return f"{len(edited):,} inputs; the step has {len(asked):,} items, and each needs one"
    if any(not isinstance(unraw(each), dict) for each in edited):
        return "the input of an item must be a JSON object"
    return None


def _decided(
    instance: Instance, command: DecideStep, code: Code, *, at: datetime
) -> tuple[WorkflowEvent, ...]:
    asked = step_decided(instance, command, at=at)
    name, by, reason, id_ = command.step, command.by, command.reason, command.id
    if command.verdict is Verdict.DENY:
        event = StepDenied(step=name, by=by, reason=reason, decision_id=id_)
        return denied(instance, event, at=at)
    now = one_more(asked.approval, command, at=at)
    # guard: step-runs-changed-inputs
    inputs = command.edited_inputs if command.edited_hash else asked.inputs
    if not is_enough(now):
        said = {"step": name, "by": by, "reason": reason, "decision_id": id_}
        return (StepApprovalGiven(**said, approval=now, inputs=inputs),)
    edited, by = changed_hash(now), approved_by(now)
    approved = StepApproved(step=name, by=by, reason=reason, decision_id=id_, edited_hash=edited)
    return approved, *prepared(instance, name, inputs, code=code)


def _size_bytes(events: Iterable[WorkflowEvent]) -> int:
    return sum(len(msgspec.json.encode(event)) for event in events)


class DecidedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of several commands."""

    events: tuple[WorkflowEvent, ...]
    """Of one commit, to be written with the time `decided_at`; none: nothing."""
    taken: int
    """How many commands were decided; the others do not fit."""
    refused: tuple[tuple[int, str], ...] = ()
    """Refused commands, with the reasons for people."""


def decide_all(
    instance: Instance, commands: Sequence[InstanceCommand], *, code: Code, at: datetime
) -> DecidedBatch:
    """Return the result of as many `commands` as fit, in order, at least the first."""
    now, size_bytes = decided_at(instance, at), 0
    events: tuple[WorkflowEvent, ...] = ()
    refused: list[tuple[int, str]] = []
    for number, command in enumerate(commands):
        if size_bytes > FIRST_BYTES_MAX:
            return DecidedBatch(events=events, taken=number, refused=tuple(refused))
        try:
            more = decide(instance, command, code=code, at=now)
        except Refused as error:
            refused.append((number, str(error)))
            continue
        instance = after(instance, more, at=now, version=instance.version)
        events += more
        size_bytes += sum(len(msgspec.json.encode(event)) for event in more)
    return DecidedBatch(events=events, taken=len(commands), refused=tuple(refused))
