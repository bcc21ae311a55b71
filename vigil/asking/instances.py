"""Instances of workflows: reading, starting and changing them, and those that no node runs.

Nobody handles commands to an instance whose workflow no node has, in code or as a definition that
it can run, in force or disabled: it can be neither canceled nor timed out until one has it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from engine.app.dedupe import KEY_CHARS_MAX
from engine.app.tools import parse_step_overrides
from engine.app.workflow_plan import starter_id
from engine.cluster.members import live_nodes
from engine.cluster.modes import SWITCHES
from engine.cluster.nodes import NodeInfo
from engine.errors import Refused
from engine.validation import check_name, check_text
from engine.workflows import requests
from engine.workflows.instance import INSTANCE_ENDED, Instance
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import list_silent_instances
from streams.clock import SystemClock
from streams.json import JsonObject
from streams.model import events
from streams.model.definitions import RegisteredDefinition, definition_id
from streams.model.events.definitions import DefinitionKind
from streams.model.triggers import Mode, Overrides
from streams.model.workflows import ResumeHow
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil import options
from vigil.asking import stack as stacks
from vigil.asking.connect import connected, pooled
from vigil.asking.requests import (
    CommandOutcome,
    CommandResult,
    KeyUse,
    ResultReader,
    SentCommand,
    report,
    request,
    watch,
)
from vigil.errors import Mistake, Trouble
from vigil.settings import Config

BEGIN_S: Final = 2.0
"""How long to watch whether an instance begins, in seconds. A free node needs some hundredths of a
second; where none is free, the request waits."""

BEGIN_LOOK_S: Final = 0.05

LOOK_S: Final = 0.2

_CLOCK: Final = SystemClock()


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """What was typed to start an instance."""

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
    """Whether a person has chosen the key, and would use it again."""
    instance_id: str
    obstacle: str
    """Why nothing comes of it now, in words; empty: something does."""
    used: KeyUse | None = None
    """The earlier use of its key, so that nothing new comes of it; None: none is known."""


def step_overrides_of(text: str) -> dict[str, Overrides]:
    """Return the overrides of steps in `text`, read as by `options.read_bytes`."""
    try:
        return parse_step_overrides(options.read_bytes(text, what="--step-overrides"))
    except ValueError as error:
        raise Mistake(f"--step-overrides: {error}") from error


def read_instance(config: Config, instance_id: str) -> Instance:
    """Return an instance as its journal has it."""
    read = partial(requests.read_instance, instance_id=instance_id)
    return request(config, read, about=f"instance {instance_id}")


def start(config: Config, asked: StartRequest) -> StartedInstance:
    """Request an instance, and watch for a moment whether it begins.

    Raises `Trouble` if nobody knows the workflow while a node is up, if it is disabled, or if none
    begins.
    """
    is_key_typed = asked.key is not None
    asked = asked if is_key_typed else replace(asked, key=requests.new_key())

    async def done(ports: Ports) -> StartedInstance:
        starter, seen = starter_id(asked.workflow), await stacks.read_stack(ports)
        await stacks.require_plausible(config, ports, seen, starter)
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
            until_s = _CLOCK.monotonic_s() + BEGIN_S
            while not await _has_begun(ports, started) and _CLOCK.monotonic_s() < until_s:
                await _CLOCK.sleep(BEGIN_LOOK_S)
        return started

    return request(config, done, about="instance")


def wait_end(config: Config, started: StartedInstance, *, timeout_s: float) -> Instance:
    """Return an instance once it has ended; raise `Trouble` if it has not after `timeout_s`."""
    until_s, id_ = _CLOCK.monotonic_s() + timeout_s, started.instance_id

    async def ended(ports: Ports) -> Instance:
        while (instance := await _read_started(ports, started)) is None or (
            instance.phase not in INSTANCE_ENDED
        ):
            if _CLOCK.monotonic_s() >= until_s:
                status = "not begun" if instance is None else instance.status.value
                raise Trouble(f"instance {id_} is still {status} after {timeout_s:g} s")
            await _CLOCK.sleep(LOOK_S)
        return instance

    return request(config, ended, about=f"instance {id_}")


def resume(
    config: Config,
    instance_id: str,
    step: str,
    how: ResumeHow,
    *,
    by: str,
    reason: str,
    wait_s: float | None,
) -> None:
    """Retry or skip a paused step, and print what became of it."""

    async def send(ports: Ports) -> ResultReader:
        id_ = await requests.resume_workflow(
            ports, instance_id, step, how=how.value, by=by, reason=reason
        )
        word = "tried again" if how is ResumeHow.RETRY else "skipped"
        wanted = CommandResult(f"{step} {word}", is_wanted=True)
        return partial(_result_of_resumption, id_, wanted)

    _request(config, instance_id, send, wait_s=wait_s)


def cancel(config: Config, instance_id: str, *, by: str, reason: str, wait_s: float | None) -> None:
    """Cancel an instance, and print what became of it."""

    async def send(ports: Ports) -> ResultReader:
        await requests.cancel_workflow(ports, instance_id, by=by, reason=reason)
        return _result_of_cancel

    _request(config, instance_id, send, wait_s=wait_s)


def _request(
    config: Config,
    instance_id: str,
    send: Callable[[Ports], Awaitable[ResultReader]],
    *,
    wait_s: float | None,
) -> None:
    """Send a request about an instance, and report the result, which `send` returns a reader of."""

    async def done(ports: Ports) -> list[CommandOutcome]:
        instance = await requests.read_instance(ports, instance_id)
        sent = SentCommand(
            name=instance_id,
            actor_id=starter_id(instance.begun.spec.name),
            workflow=instance.begun.spec.name,
            subject=ports.stack.workflow(instance_id),
            result=await send(ports),
        )
        return await watch(ports, [sent], wait_s=wait_s)

    report(request(config, done, about=f"instance {instance_id}"))


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


REMEDY: Final = (
    "Deploy it again; or what it lacks, if it is defined: `vigil workflows definitions`; or any"
    " workflow of that name, and cancel them: `vigil workflows cancel ID`."
)


class UnservedInstances(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of one workflow that no node runs."""

    workflow_id: str
    ids: tuple[str, ...]
    silent_since: str
    is_cut: bool
    """There may be more of them than the rows name in one answer."""

    @property
    def number(self) -> str:
        """How many there are, in words."""
        words = f"{len(self.ids):,} instance{'s' if len(self.ids) > 1 else ''}"
        return f"at least {words}" if self.is_cut else words

    @property
    def problem(self) -> str:
        """What is wrong with them, in words."""
        silent = f"the longest silent since {self.silent_since}"
        return f"{silent}: no node that is up runs the workflow"


async def unserved_instances(config: Config) -> list[Row]:
    """Return the rows of open instances whose workflow no node runs, the longest silent first.

    At most `ROWS_MAX`. None while no node is up at all: nobody can tell what they run.
    """
    async with connected(config, creates=False, is_reading=True) as ports:
        nodes, definitions = await live_nodes(ports.gates), await stacks.read_definitions(ports)
    if not nodes:  # guard: no-node-says-unserved
        return []
    async with pooled(config) as pool:
        return await list_silent_instances(
            pool, config.stack, before=_CLOCK.now(), but=served(nodes, definitions)
        )


def served(nodes: Iterable[NodeInfo], definitions: Iterable[RegisteredDefinition]) -> list[str]:
    """Return the workflows that a node runs, or finishes as they are disabled, by name."""
    there = list(nodes)
    # guard: idle-holder-serves-none
    running = (info.workflow for node in there for info in node.actors.values() if info.runs)
    closed = (each.id for each in definitions if any(_sees_to(node, each) for node in there))
    return sorted({*filter(None, running), *closed})  # guard: lacking-told-from-disabled


def _sees_to(node: NodeInfo, registered: RegisteredDefinition) -> bool:
    """Return whether a node finishes what is open of a workflow that is disabled.

    Each does that runs anything, unless it reports why not; by name it tells only what it begins.
    """
    # guard: defined-served-by-holders
    is_closed = registered.kind is DefinitionKind.WORKFLOW and not registered.holds
    has_problem = definition_id(registered.kind, registered.id) in node.problems
    # guard: told-lack-does-not-serve
    return is_closed and SWITCHES[node.mode].runs and not has_problem


def by_workflow(rows: Sequence[Row]) -> list[UnservedInstances]:
    """Return what `unserved_instances` has found, by workflow, the longest silent first."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row["workflow_id"])].append(row)
    return [
        UnservedInstances(
            workflow_id=workflow,
            ids=tuple(str(row["instance_id"]) for row in of_one),
            silent_since=f"{of_one[0]['latest_at']}",
            is_cut=len(rows) >= ROWS_MAX,  # guard: unserved-page-full
        )
        for workflow, of_one in found.items()
    ]


def advice(forsaken: UnservedInstances) -> str:
    """Return in one line what is wrong with these instances, and what to do."""
    which = f"{forsaken.number} of {forsaken.workflow_id!r}"
    return f"{which}, {forsaken.problem}. {REMEDY}"
