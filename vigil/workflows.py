"""Workflows at the command line: asked for as a person does, and looked at on the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from engine.app.workflow_starter import starter_id
from engine.errors import BadRequest, Refused
from engine.workflows import requests
from engine.workflows.instance import Instance
from streams.model.commands import Verdict
from streams.model.events import (
    LogEvent,
    StepApprovalAsked,
    StepApproved,
    StepDenied,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowFinished,
    WorkflowResumed,
)
from streams.model.workflows import ResumeHow
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.deciding import require_digits
from vigil.errors import Mistake, Trouble
from vigil.outcomes import Outcome, Sent, Stand, watch
from vigil.settings import Reading
from vigil.who import stranger_hint
from vigil.work import connected

T = TypeVar("T")


def look(reading: Reading, instance_id: str) -> Instance:
    """Return an instance as its journal says it is.

    Raises:
        Trouble: there is none of this id.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away.
    """
    return inquire(reading, instance_id, lambda ports: requests.read_instance(ports, instance_id))


def resume(
    reading: Reading,
    instance_id: str,
    step: str,
    how: ResumeHow,
    *,
    by: str,
    reason: str,
    wait_s: float | None,
) -> Outcome:
    """Have a paused step tried again or skipped, and return what came of that.

    Raises:
        Mistake: a value is impossible.
        Trouble: nothing of the step is paused.
        Unavailable, Incompatible: the log is away.
    """

    async def done(ports: Ports) -> Outcome:
        instance = await requests.read_instance(ports, instance_id)
        id_ = await requests.resume_workflow(
            ports, instance_id, step, how=how.value, by=by, reason=reason
        )
        word = "tried again" if how is ResumeHow.RETRY else "skipped"
        # Its approval, if it had one, was long before.
        stand = _stand_of(id_, Stand(f"{step} {word}", is_wanted=True))
        return await _watch(ports, instance, stand, wait_s=wait_s)

    return inquire(reading, instance_id, done)


def cancel(
    reading: Reading, instance_id: str, *, by: str, reason: str, wait_s: float | None
) -> Outcome:
    """Have an instance canceled, and return what came of that.

    Raises:
        Mistake: a value is impossible.
        Trouble: it is over, or stops already.
        Unavailable, Incompatible: the log is away.
    """

    async def done(ports: Ports) -> Outcome:
        instance = await requests.read_instance(ports, instance_id)
        await requests.cancel_workflow(ports, instance_id, by=by, reason=reason)
        return await _watch(ports, instance, _stand_of_cancel, wait_s=wait_s)

    return inquire(reading, instance_id, done)


def asked_of(instance: Instance, step: str, *, hash_: str | None) -> StepApprovalAsked:
    """Return what a step asks people.

    Args:
        instance: whose step it is.
        step: its name.
        hash_: the first digits of what is to be decided; None: whatever it is.

    Raises:
        Trouble: it asks nothing, or something else.
    """
    state = instance.steps.get(step)
    if state is None or state.asked is None:
        names = [name for name, each in instance.steps.items() if each.asked is not None]
        raise Trouble(f"step {step!r} does not wait for approval; {_named(names)}")
    if hash_ is not None:
        require_digits(f"step {step!r}", state.asked.approval.plan_hash, hash_)
    return state.asked


def decide(
    reading: Reading,
    instance: Instance,
    asked: StepApprovalAsked,
    verdict: Verdict,
    *,
    by: str,
    reason: str,
    wait_s: float | None,
) -> Outcome:
    """Have a step approved or denied, and return what came of that.

    Raises:
        Mistake: a value is impossible.
        Trouble: the decision cannot stand.
        Unavailable, Incompatible: the log is away.
    """
    instance_id, step = instance.begun.instance_id, asked.step

    async def done(ports: Ports) -> Outcome:
        try:
            id_ = await requests.decide_step(
                ports,
                instance_id,
                step,
                verdict.value,
                plan_hash=asked.approval.plan_hash,
                by=by,
                reason=reason,
            )
        except Refused as error:
            hint = stranger_hint(asked.approval.approvers, by)
            raise Refused(f"{error}{hint}") from error
        approves = verdict is Verdict.APPROVE
        word = Stand(f"{step} {'approved' if approves else 'denied'} by {by}", is_wanted=True)
        stand = _stand_of(id_, word, rivals_at=step)
        return await _watch(ports, instance, stand, wait_s=wait_s)

    return inquire(reading, instance_id, done)


def inquire(reading: Reading, instance_id: str, question: Callable[[Ports], Awaitable[T]]) -> T:
    """Return the answer of the log; what is refused is told as one line."""

    async def answered() -> T:
        async with connected(reading, creates=False) as ports:
            try:
                return await question(ports)
            except BadRequest as error:
                raise Mistake(str(error)) from error
            except Refused as error:
                raise Trouble(f"instance {instance_id}: {error}") from error

    return asyncio.run(answered())


async def _watch(
    ports: Ports,
    instance: Instance,
    stand: Callable[[Sequence[Recorded]], Stand | None],
    *,
    wait_s: float | None,
) -> Outcome:
    begun = instance.begun
    sent = Sent(
        name=begun.instance_id,
        actor_id=starter_id(begun.spec.name),
        subject=ports.stack.workflow(begun.instance_id),
        stand=stand,
    )
    (outcome,) = await watch(ports, [sent], wait_s=wait_s)
    return outcome


def _stand_of(
    id_: str, wanted: Stand, *, rivals_at: str = ""
) -> Callable[[Sequence[Recorded]], Stand | None]:
    """Return what finds out whether the request `id_` was followed.

    Args:
        id_: the request's.
        wanted: what to say if it was.
        rivals_at: the step that only one decides on; empty: it is no decision.
    """

    def stand(records: Sequence[Recorded]) -> Stand | None:
        events = [event for record in records for event in record.commit.events]
        if id_ in map(_request_of, events):
            return wanted
        for event in reversed(events):
            if isinstance(event, WorkflowFinished):
                return Stand(f"it is {event.status} by now", is_wanted=False)
            if isinstance(event, StepApproved | StepDenied) and event.step == rivals_at:
                return Stand(f"{event.by or 'time'} was faster", is_wanted=False)
        return None

    return stand


def _request_of(event: LogEvent) -> str:
    match event:
        case WorkflowResumed(resume_id=id_):
            return id_
        case StepApproved(decision_id=id_) | StepDenied(decision_id=id_):
            return id_
        case _:
            return ""


def _stand_of_cancel(records: Sequence[Recorded]) -> Stand | None:
    for record in records:
        for event in record.commit.events:
            match event:
                case WorkflowCancelAsked():
                    return Stand("to be canceled", is_wanted=True)
                case WorkflowAborted():
                    return Stand(f"it was aborted: {event.error_class}", is_wanted=False)
                case WorkflowFinished():
                    return Stand(f"it is {event.status} by now", is_wanted=False)
                case _:
                    pass
    return None


def _named(names: Sequence[str]) -> str:
    return f"those that do: {', '.join(names)}" if names else "none does"
