"""Requests about workflows, for people and programs: start, resume, cancel.

Each but the first reads the instance's journal and refuses at once what is not allowed; a node
checks again: another request may be faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal
from uuid import uuid4

import msgspec

from engine.app.workflow_plan import START_EXPECTATION, starter_id
from engine.episodes.fire import FireRequest, fire_dedupe_key, send_fire
from engine.errors import BadRequest, NotOnJournal, Refused
from engine.runtime.store import read_current
from engine.validation import (
    check_cause,
    check_id,
    check_name,
    check_switch,
)
from engine.workflows.decide import resumed
from engine.workflows.instance import INSTANCE_ENDED, Instance, fold_instance
from engine.workflows.instance import instance_id as instance_id_of
from streams.clock import SystemClock
from streams.json import JsonObject
from streams.model.commands import CancelWorkflow, ResumeWorkflow
from streams.model.triggers import Mode, Overrides
from streams.model.workflows import ResumeHow
from streams.ports.all import Ports
from streams.subjects import Stack
from streams.tracing import traceparent

_CLOCK: Final = SystemClock()


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request to start an instance."""

    instance_id: str
    has_begun: bool = False
    refused: str = ""
    """Why none starts, for people; empty: it has started, or still may."""
    busy_instance_id: str = ""
    """The subject's running instance, if that is why none starts."""


async def start_workflow(
    ports: Ports,
    workflow: str,
    payload: JsonObject | None = None,
    *,
    by: str,
    reason: str = "",
    key: str | None = None,
    dry_run: bool = False,
    overrides: Overrides | None = None,
    step_overrides: Mapping[str, Overrides] | None = None,
) -> str:
    """Ask for an instance of `workflow`, and return the instance's id.

    The request is durable when this returns, and waits until a node has the workflow. With
    `overlap="skip"`, none starts while the subject has one; `read_beginning` tells, given a `key`.

    Args:
        payload: a JSON object, `trigger.payload`, of up to 512 KiB.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
        key: the idempotency key, 1 to 512 characters: a repeated request starts no second instance.
            Default: none.
        dry_run: whether to change nothing outside; it applies to all its episodes.
        overrides: of a dry run, made by `overrides(…)`.
        step_overrides: step → overrides that win over `overrides` there; 192 KiB in all. If the
            workflow has no such step, none starts, as `read_beginning` says.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        UnknownOutcome: no answer. Asking again with the same `key` is safe.
    """
    check_name("workflow", workflow)
    check_switch("dry_run", value=dry_run)
    if step_overrides is not None and not dry_run:
        raise BadRequest(field="step_overrides", problem="only a dry run has any; ask for one")
    asked = FireRequest(
        expectation=START_EXPECTATION,
        requested_by=by,
        key=new_key() if key is None else key,
        reason=reason,
        payload={} if payload is None else payload,
        mode=Mode.DRY_RUN if dry_run else Mode.LIVE,
        overrides=overrides,
        step_overrides=dict(step_overrides or {}),
    )
    await send_fire(ports, starter_id(workflow), asked)
    return started_id(ports.stack, workflow, asked.key, mode=asked.mode)


def new_key() -> str:
    """Return a fresh idempotency key."""
    return uuid4().hex


def started_id(stack: Stack, workflow: str, key: str, *, mode: Mode) -> str:
    """Return the id of the instance that a request with the idempotency key `key` starts."""
    dedupe_key = fire_dedupe_key(key, mode)
    return instance_id_of(stack=stack.name, workflow=workflow, dedupe_key=dedupe_key)


async def read_beginning(
    ports: Ports, workflow: str, key: str, *, dry_run: bool = False
) -> Beginning:
    """Return the result of a call of `start_workflow` with this `key`, as the journal says now."""
    mode = Mode.DRY_RUN if dry_run else Mode.LIVE
    instance_id = started_id(ports.stack, workflow, key, mode=mode)
    instance = fold_instance(await ports.log.read(ports.stack.workflow(instance_id)))
    if instance.started is None:
        return Beginning(instance_id=instance_id)
    why = instance.why_not_started
    return Beginning(
        instance_id=instance_id,
        has_begun=not why,
        refused=why,
        busy_instance_id=instance.busy_instance_id,
    )


async def resume_workflow(
    ports: Ports,
    instance_id: str,
    step: str,
    *,
    how: Literal["retry", "skip"],
    by: str,
    reason: str = "",
) -> str:
    """Ask that the paused items of a step be tried again, or skipped; return the request's id.

    Args:
        how: `retry` gives each as many attempts as at first; `skip` makes its result None.
        by: who asks: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        NotOnJournal: there is no such instance, or it has no such step.
        Refused: nothing of the step is paused.
    """
    if how not in set(ResumeHow):
        raise BadRequest(field="how", problem=f"{how!r}; use retry or skip")
    instance = await _look(ports, instance_id, by=by, reason=reason)
    if step not in instance.steps:  # guard: unknown-step-is-absent
        raise NotOnJournal(f"it has no step {step!r}; its steps: {', '.join(instance.steps)}")
    command = ResumeWorkflow(
        workflow=instance.begun.spec.name,
        instance_id=instance_id,
        id=uuid4().hex,
        step=step,
        how=ResumeHow(how),
        by=by,
        reason=reason,
    )
    resumed(instance, command)
    await ports.commands.send(command, id=f"resume.{command.id}", trace=traceparent())
    return command.id


async def cancel_workflow(ports: Ports, instance_id: str, *, by: str, reason: str = "") -> None:
    """Ask for an instance to be canceled: running steps end, and done ones are compensated.

    Args:
        by: who asks: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        NotOnJournal: there is no such instance.
        Refused: it has ended, or it is stopping already.
    """
    instance = await _look(ports, instance_id, by=by, reason=reason)
    if not instance.goes_on:
        is_over = instance.phase in INSTANCE_ENDED
        raise Refused(f"it is {instance.status} {'by now' if is_over else 'already'}")
    command = CancelWorkflow(
        workflow=instance.begun.spec.name, instance_id=instance_id, by=by, reason=reason
    )
    await ports.commands.send(
        command, id=f"cancel.{instance_id}.{uuid4().hex}", trace=traceparent()
    )


async def read_instance(ports: Ports, instance_id: str, *, at: datetime | None = None) -> Instance:
    """Return an instance by its journal; `NotOnJournal` if there is none of this id.

    With `at`, as it was then: by what its journal had.
    """
    subject = ports.stack.workflow(instance_id)
    # guard: workflow-refused-by-leader
    records = await read_current(ports.log, _CLOCK, subject)
    # guard: instance-then-by-journal
    instance = fold_instance(each for each in records if at is None or each.commit.at <= at)
    if instance.started is None:
        raise NotOnJournal("there is no such instance")
    return instance


async def _look(ports: Ports, instance_id: str, *, by: str, reason: str) -> Instance:
    check_id("instance_id", instance_id)
    check_cause(by, reason)
    return await read_instance(ports, instance_id)
