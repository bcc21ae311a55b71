"""Starts instances of workflows: the tool that a starter's episode calls.

A command for the instance is sent before its first commit, and waits in the queue for it (see
`engine.workflows.worker`): the other way round, a crash in between would leave it stuck.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from engine.app.tools import EngineTool, ToolFailed
from engine.app.workflow import Workflow
from engine.app.workflow_plan import (
    START_EXPECTATION,
    UNAVAILABLE,
    StartResult,
    check_steps,
    spec_of,
)
from engine.errors import BadRequest, BadWorkflow
from engine.runtime.catalog import CannotRun, Catalog, Revisions
from engine.runtime.store import append_first
from engine.workflows.events import count_events
from engine.workflows.instance import held_subject
from engine.workflows.start import SubStart, called_off, started
from engine.workflows.subjects import SubjectBusy, Subjects
from streams.clock import Clock
from streams.errors import (
    BadName,
    TooLarge,
    Unavailable,
    Unwritable,
)
from streams.json import JsonObject
from streams.model.commands import Advance
from streams.model.events import EpisodeOpened, WorkflowStarted
from streams.model.triggers import Mode
from streams.model.workflows import WorkflowSpec
from streams.ports.all import Ports
from streams.ports.log import Commit
from streams.tracing import traceparent

UNSTARTABLE: Final = "workflow_not_started"
"""Error class of an episode whose cause can start no instance."""


async def begin_instance(ports: Ports, started: WorkflowStarted, *, at: datetime) -> bool:
    """Call a node to an instance and start it; return whether it had not begun before."""
    id_, trace = started.instance_id, traceparent()
    commit = Commit(id=f"begin.{id_}", at=at, events=(started,), trace=trace)
    return await _be_first(ports, commit, started.spec.name, id_, mode=started.mode)


async def call_off_instance(ports: Ports, sub: SubStart, *, at: datetime) -> bool:
    """Record that an instance never starts, and call a node to report that; False: it has begun."""
    id_ = sub.instance_id
    commit = Commit(id=f"call_off.{id_}", at=at, events=called_off(sub), trace=traceparent())
    return await _be_first(ports, commit, sub.workflow, id_, mode=sub.mode)


async def _be_first(ports: Ports, commit: Commit, workflow: str, id_: str, *, mode: Mode) -> bool:
    """Call a node to an instance and write its first commit; return whether it is the first."""
    advance = Advance(workflow=workflow, instance_id=id_)
    # guard: begun-goes-on-uncalled
    await ports.commands.send(advance, id=f"begin.{id_}", trace=commit.trace)
    is_first = await append_first(ports.log, ports.stack.workflow(id_), commit)
    if is_first:  # guard: twice-begun-counted-once
        count_events(workflow, commit.events, mode=mode)
    return is_first


@dataclass(frozen=True)
class StartTool(EngineTool):
    """Starts instances for one node, safe to repeat; those of a dry run are dry runs."""

    catalog: Catalog
    revisions: Revisions
    ports: Ports
    clock: Clock

    async def serve(self, opened: EpisodeOpened, action: str, args: JsonObject) -> object:
        """Start the instance of an episode's cause; retry it only after `tool_unavailable`."""
        name = args.get("workflow")
        if action != START_EXPECTATION or not isinstance(name, str):
            raise ToolFailed(UNSTARTABLE, f"nothing known to {action!r}: {name!r}")
        try:
            event = started(
                await self._spec(name, opened),
                opened.trigger,
                stack=self.ports.stack.name,
                dedupe_key=opened.dedupe_key,
                mode=opened.mode,
                overrides=opened.overrides,
                step_overrides=opened.step_overrides,
            )
            return msgspec.to_builtins(await self._begin(event))
        except (BadRequest, BadName, TooLarge, Unwritable) as error:
            raise ToolFailed(UNSTARTABLE, str(error)) from error
        except Unavailable as error:
            raise ToolFailed(UNAVAILABLE, str(error)) from error

    async def _spec(self, name: str, opened: EpisodeOpened) -> WorkflowSpec:
        """Return the workflow as it was when the cause came, or else as it is now."""
        then = await self._as_opened(name, opened)
        actors, workflows = self.catalog.actors, self.catalog.workflows
        now = workflows.get(name)
        if now is None:
            raise Unavailable(name, detail=f"workflow {name!r} begins nothing here now")
        try:
            check_steps(then or now, actors, workflows)  # guard: cause-begins-current-workflow
        except BadWorkflow:  # What it ran has gone since. What there is now can begin.
            return spec_of(now, actors)
        return spec_of(then or now, actors)

    async def _as_opened(self, name: str, opened: EpisodeOpened) -> Workflow | None:
        if opened.revision == 0:  # guard: cause-begins-old-workflow
            return None
        try:
            return await self.revisions.workflow(name, opened.revision)
        except CannotRun:
            return None

    async def _begin(self, event: WorkflowStarted) -> StartResult:
        held = held_subject(event)
        taken = event if held is None else await Subjects(self.ports).take(event, held)
        if isinstance(taken, SubjectBusy):
            return StartResult(instance_id=taken.instance_id, is_skipped=True)
        try:
            await begin_instance(self.ports, taken, at=self.clock.now())
        except (TooLarge, Unwritable):
            if held is not None:  # guard: unwritable-instance-gives-place-back
                await Subjects(self.ports).give_back(held, taken.instance_id)
            raise
        return StartResult(instance_id=taken.instance_id)
