"""The engine's tool that begins instances of workflows, for the episodes that have their causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from engine.errors import BadRequest, BadWorkflow
from engine.runtime.cast import Cast, Revisions
from engine.runtime.editions import Hindered
from engine.runtime.instances import begin_instance
from engine.runtime.subject_locks import is_over, keep_subject, take_subject
from engine.tools import EngineTool, ToolFailed
from engine.workflows.binding import check_steps, spec_of
from engine.workflows.effects import SubjectLock, lock_of
from engine.workflows.start import started
from engine.workflows.starter import START, UNAVAILABLE, Begun
from engine.workflows.workflow import Workflow
from streams.clock import Clock
from streams.errors import BadName, TooLarge, Unavailable, Unwritable
from streams.events import EpisodeOpened, WorkflowStarted
from streams.json import JsonObject
from streams.ports import Ports
from streams.workflows import WorkflowSpec

UNSTARTABLE: Final = "workflow_not_started"
"""Error class of an episode whose cause can begin no instance."""


@dataclass(frozen=True)
class Starter(EngineTool):
    """Begins instances for one node.

    A dry run may call it, too: what begins then is a dry run itself. A call that is made again
    begins nothing else, for the instance is named after the cause.
    """

    cast: Cast
    editions: Revisions
    ports: Ports
    clock: Clock

    async def serve(self, opened: EpisodeOpened, action: str, args: JsonObject) -> object:
        """Begin the instance of the workflow in `args` that the cause of an episode has.

        Raises:
            ToolFailed: `tool_unavailable`, try again; anything else is for good.
        """
        name = args.get("workflow")
        if action != START or not isinstance(name, str):
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
        """Return what to begin: the workflow as it was when the cause came, or else as it is now.

        Raises:
            Unavailable: it begins nothing here any more. Whoever tries again leaves the episode to
                a node that has it: who took it here has lost the leave to go on.
        """
        then = await self._as_opened(name, opened)
        actors, workflows = self.cast.actors, self.cast.workflows
        now = workflows.get(name)
        if now is None:
            raise Unavailable(name, detail=f"workflow {name!r} begins nothing here now")
        try:
            check_steps(then or now, actors, workflows)
        except BadWorkflow:  # What it ran has gone since. What there is now can begin.
            return spec_of(now, actors)
        return spec_of(then or now, actors)

    async def _as_opened(self, name: str, opened: EpisodeOpened) -> Workflow | None:
        if opened.revision == 0:
            return None
        try:
            return await self.editions.workflow(name, opened.revision)
        except Hindered:
            return None

    async def _begin(self, event: WorkflowStarted) -> Begun:
        lock = lock_of(event)
        if lock is not None:
            return await self._begin_alone(event, lock)
        await begin_instance(self.ports, event, at=self.clock.now())
        return Begun(instance_id=event.instance_id)

    async def _begin_alone(self, event: WorkflowStarted, lock: SubjectLock) -> Begun:
        """Begin an instance unless another one is busy with its subject."""
        id_, ports = event.instance_id, self.ports
        key = ports, lock.workflow, lock.subject, id_
        # One that has begun may be over, and must not keep its subject for a second time.
        if await ports.log.last(ports.stack.workflow(id_)) is None:
            holder = await take_subject(*key)
            if holder != id_:
                return Begun(instance_id=holder, is_skipped=True)
        is_first = await begin_instance(ports, event, at=self.clock.now())
        # Whoever conducts it keeps the subject, too, but none that lacks its code does so in time.
        # If it is over, the key was put after it was freed, and is to go by itself.
        if is_first or not await is_over(ports, id_):
            await keep_subject(*key)
        return Begun(instance_id=id_)
