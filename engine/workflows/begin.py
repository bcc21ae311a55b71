"""Starts instances of workflows: the tool that a starter's episode calls, and the subject lock.

A command for the instance is sent before its first commit, and waits in the queue for it (see
`engine.workflows.worker`): the other way round, a crash in between would leave it stuck.

With `overlap="skip"`, a key in a bucket names the subject's instance until that has ended. Whether
it has is on its journal, so whoever finds the key looks there, and takes the subject if it is over:
its worker may have died before it removed the key. An instance that has not begun has its subject
for an hour, which another key counts: its starter may never come again.
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
from engine.workflows.instance import SubjectLock, lock_of
from engine.workflows.start import SubStart, called_off, started
from streams.clock import Clock
from streams.errors import (
    BadName,
    RevisionConflict,
    TooLarge,
    Unavailable,
    UnreadableEvent,
    Unwritable,
)
from streams.json import JsonObject
from streams.keys import start_key, workflow_lock_key
from streams.model.commands import Advance
from streams.model.events import EpisodeOpened, WorkflowFinished, WorkflowStarted
from streams.model.triggers import Mode
from streams.model.workflows import WorkflowSpec
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry
from streams.ports.log import Commit
from streams.tracing import traceparent

UNBEGUN_S: Final = 3_600
"""How long an instance that has not begun has its subject, in seconds: far longer than its starter
needs to begin it, or to come again after a crash."""

TRIES_MAX: Final = 16
"""Most tries for one subject while others change its key at the same time."""


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


async def take_subject(ports: Ports, workflow: str, subject: str, instance_id: str) -> str:
    """Take the lock of `subject` for an instance, if it is free; return which instance has it."""
    key, own = workflow_lock_key(workflow, subject), instance_id.encode()
    # First, so that nobody finds the key of an instance without it.
    await ports.gates.put(start_key(instance_id), b"", ttl_s=UNBEGUN_S)
    for _ in range(TRIES_MAX):
        entry = await ports.gates.get(key)
        rival = _instance_in(entry)
        if rival == instance_id:
            return rival
        if rival and not await _needs_no_subject(ports, rival):  # guard: ended-lock-taken
            return rival
        revision = entry.revision if entry is not None else 0
        try:
            await ports.gates.put(key, own, after=revision)  # guard: begun-instance-keeps-subject
        except RevisionConflict:
            continue
        return instance_id
    raise Unavailable(key, detail="others change it at the same time")


async def free_subject(ports: Ports, workflow: str, subject: str, instance_id: str) -> None:
    """Free the lock of `subject` if this ended instance has it."""
    key = workflow_lock_key(workflow, subject)
    for _ in range(TRIES_MAX):
        entry = await ports.gates.get(key)
        if entry is None or _instance_in(entry) != instance_id:
            return
        try:
            await ports.gates.delete(key, after=entry.revision)  # guard: retaken-key-not-freed
        except RevisionConflict:
            continue  # Another one has taken its place.
        return
    raise Unavailable(key, detail="others change it at the same time")


def _instance_in(entry: BucketEntry | None) -> str:
    return entry.value.decode(errors="replace") if entry is not None and entry.value else ""


async def _needs_no_subject(ports: Ports, instance_id: str) -> bool:
    """Return whether an instance has ended, or never begins."""
    try:
        newest = await ports.log.last(ports.stack.workflow(instance_id))
    except UnreadableEvent:  # Of a newer version: it knows better.
        return False
    if newest is None:
        # guard: unbegun-instance-frees-subject
        return await ports.gates.get(start_key(instance_id)) is None
    return any(isinstance(event, WorkflowFinished) for event in newest.commit.events)


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
        lock = lock_of(event)
        if lock is not None:
            return await self._begin_alone(event, lock)
        await begin_instance(self.ports, event, at=self.clock.now())
        return StartResult(instance_id=event.instance_id)

    async def _begin_alone(self, event: WorkflowStarted, lock: SubjectLock) -> StartResult:
        id_, ports = event.instance_id, self.ports
        key = ports, lock.workflow, lock.subject, id_
        # One that has begun may be over, and must not keep its subject for a second time.
        # guard: begun-instance-locks-once
        if await ports.log.last(ports.stack.workflow(id_)) is None:
            holder = await take_subject(*key)
            if holder != id_:
                return StartResult(instance_id=holder, is_skipped=True)
        is_first = await begin_instance(ports, event, at=self.clock.now())
        # If it is over, the key was put after it was freed.
        # guard: ended-instance-not-relocked
        if not is_first and await _needs_no_subject(ports, id_):
            await free_subject(*key)
        return StartResult(instance_id=id_)
