"""Instances of workflows on the log: starting them, waiting for them, and changing them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from engine.app.dedupe import KEY_CHARS_MAX
from engine.app.workflow_plan import starter_id
from engine.errors import Refused
from engine.validation import check_name, check_text
from engine.workflows import requests
from engine.workflows.instance import INSTANCE_ENDED, Instance
from streams.clock import Clock
from streams.json import JsonObject
from streams.model import events
from streams.model.triggers import Mode, Overrides
from streams.model.workflows import ResumeHow
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.asking import stack as stacks
from vigil.asking.requests import (
    CommandOutcome,
    CommandResult,
    KeyUse,
    ResultReader,
    SentCommand,
    watch,
)
from vigil.errors import Trouble

BEGIN_S: Final = 2.0
"""How long to watch whether an instance begins, in seconds. A free node needs some hundredths of a
second; where none is free, the request waits."""

BEGIN_LOOK_S: Final = 0.05

LOOK_S: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """What is asked of `engine.workflows.requests.start_workflow`."""

    workflow: str
    payload: JsonObject
    by: str
    reason: str
    key: str | None
    dry_run: bool
    overrides: Overrides | None = None
    step_overrides: Mapping[str, Overrides] | None = None


@dataclass(frozen=True, kw_only=True)
class StartedInstance:
    """An instance that was asked for, and that has begun or still may."""

    asked: StartRequest
    is_key_typed: bool
    """Whether somebody has chosen the key, and would use it again."""
    instance_id: str
    obstacle: str
    """Why nothing comes of it now, in words; empty: something does."""
    used: KeyUse | None = None
    """The earlier use of its key, so that nothing new comes of it; None: none is known."""

    @property
    def used_before(self) -> str:
        """The same in words; empty: none is known."""
        return "" if self.used is None else self.used.in_words


async def start(
    ports: Ports, asked: StartRequest, *, rows: stacks.OpensRows, clock: Clock
) -> StartedInstance:
    """Request an instance, and watch for a moment whether it begins.

    Raises `Trouble` if nobody knows the workflow while a node is up, if it is disabled, or if none
    begins.
    """
    is_key_typed = asked.key is not None
    asked = asked if is_key_typed else replace(asked, key=requests.new_key())
    starter, seen = starter_id(asked.workflow), await stacks.read_stack(ports)
    await stacks.require_plausible(rows, ports, seen, starter)
    await stacks.require_in_force(ports, seen, starter)
    used = await _key_use_of(ports, asked) if is_key_typed else None
    instance_id = await requests.start_workflow(ports, **vars(asked))
    started = StartedInstance(
        asked=asked,
        is_key_typed=is_key_typed,
        instance_id=instance_id,
        obstacle="" if used else stacks.waking_obstacle(seen, starter),
        used=used,
    )
    if not started.obstacle:
        until_s = clock.monotonic_s() + BEGIN_S
        while not await _has_begun(ports, started) and clock.monotonic_s() < until_s:
            await clock.sleep(BEGIN_LOOK_S)
    return started


async def wait_end(
    ports: Ports, started: StartedInstance, *, timeout_s: float, clock: Clock
) -> Instance:
    """Return an instance once it has ended; raise `Trouble` if it has not after `timeout_s`."""
    until_s, id_ = clock.monotonic_s() + timeout_s, started.instance_id
    while (instance := await _read_started(ports, started)) is None or (
        instance.phase not in INSTANCE_ENDED
    ):
        if clock.monotonic_s() >= until_s:
            status = "not begun" if instance is None else instance.status.value
            raise Trouble(f"instance {id_} is still {status} after {timeout_s:g} s")
        await clock.sleep(LOOK_S)
    return instance


async def resume(
    ports: Ports,
    instance_id: str,
    step: str,
    how: ResumeHow,
    *,
    by: str,
    reason: str,
    wait_s: float | None,
) -> CommandOutcome:
    """Retry or skip a paused step, and return what became of it."""

    async def send(ports: Ports) -> ResultReader:
        id_ = await requests.resume_workflow(
            ports, instance_id, step, how=how.value, by=by, reason=reason
        )
        word = "tried again" if how is ResumeHow.RETRY else "skipped"
        wanted = CommandResult(f"{step} {word}", is_wanted=True)
        return partial(_result_of_resumption, id_, wanted)

    return await _request(ports, instance_id, send, wait_s=wait_s)


async def cancel(
    ports: Ports, instance_id: str, *, by: str, reason: str, wait_s: float | None
) -> CommandOutcome:
    """Cancel an instance, and return what became of it."""

    async def send(ports: Ports) -> ResultReader:
        await requests.cancel_workflow(ports, instance_id, by=by, reason=reason)
        return _result_of_cancel

    return await _request(ports, instance_id, send, wait_s=wait_s)


async def _request(
    ports: Ports,
    instance_id: str,
    send: Callable[[Ports], Awaitable[ResultReader]],
    *,
    wait_s: float | None,
) -> CommandOutcome:
    """Send a request about an instance; `send` returns a reader of its result."""
    instance = await requests.read_instance(ports, instance_id)
    sent = SentCommand(
        name=instance_id,
        actor_id=starter_id(instance.begun.spec.name),
        workflow=instance.begun.spec.name,
        subject=ports.stack.workflow(instance_id),
        result=await send(ports),
    )
    (outcome,) = await watch(ports, [sent], wait_s=wait_s)
    return outcome


def _result_of_resumption(
    id_: str, wanted: CommandResult, records: Sequence[Recorded]
) -> CommandResult | None:
    """Return `wanted` if the request `id_` was followed."""
    result = None
    for event in _events(records):
        match event:
            case events.WorkflowResumed(resume_id=resume_id) if resume_id == id_:
                return wanted
            case events.WorkflowFinished(status=status):
                result = CommandResult(f"it is {status} by now", is_wanted=False)
            case _:
                pass
    return result


def _events(records: Sequence[Recorded]) -> list[events.LogEvent]:
    return [event for record in records for event in record.commit.events]


def _result_of_cancel(records: Sequence[Recorded]) -> CommandResult | None:
    for event in _events(records):
        match event:
            case events.WorkflowCancelAsked():
                return CommandResult("to be canceled", is_wanted=True)
            case events.WorkflowAborted():
                return CommandResult(f"it was aborted: {event.error_class}", is_wanted=False)
            case events.WorkflowFinished():
                return CommandResult(f"it is {event.status} by now", is_wanted=False)
            case _:
                pass
    return None


async def _key_use_of(ports: Ports, asked: StartRequest) -> KeyUse | None:
    """Return the earlier use of the key of a request; `BadRequest`: it is impossible."""
    assert asked.key is not None, "a person has typed it"
    check_name("workflow", asked.workflow)
    check_text("key", asked.key, least=1, most=KEY_CHARS_MAX)
    mode = Mode.DRY_RUN if asked.dry_run else Mode.LIVE
    id_ = requests.started_id(ports.stack, asked.workflow, asked.key, mode=mode)
    records = await ports.log.read(ports.stack.workflow(id_))
    return KeyUse(key=asked.key, at=records[0].commit.at, is_over=True) if records else None


async def _read_started(ports: Ports, started: StartedInstance) -> Instance | None:
    try:
        instance = await requests.read_instance(ports, started.instance_id)
    except Refused:
        return None
    # guard: waiter-learns-refusal
    _require_started(started, instance.why_not_started, busy=instance.busy_instance_id)
    return instance


async def _has_begun(ports: Ports, started: StartedInstance) -> bool:
    asked = started.asked
    assert asked.key is not None, "who asks without one is given one"
    name, is_dry = asked.workflow, asked.dry_run
    said = await requests.read_beginning(ports, name, asked.key, dry_run=is_dry)
    _require_started(started, said.refused, busy=said.busy_instance_id)
    return said.has_begun


def _require_started(started: StartedInstance, why: str, *, busy: str) -> None:
    """Raise `Trouble` if there is a reason `why` no instance starts."""
    if why:  # guard: asker-learns-refusal
        # The key has an instance that never started, also when the busy one is over.
        is_spent = started.is_key_typed and busy  # guard: key-chooser-told-used
        hint = "; once it is, use another --key" if is_spent else ""
        raise Trouble(f"{started.asked.workflow}: no instance begins: {why}{hint}")
