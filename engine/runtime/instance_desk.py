"""Puts commands to an instance: read → follow the newest commit → decide → write → follow.

Whoever holds a command decides. Of two nodes that decide on the same version one writes, and the
other reads again: no lease is needed. It is over once nothing more follows and all that was decided
is done; a node that dies before leaves the command to another, which first does what the newest
commit asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from engine.obstacle import Obstacle
from engine.runtime.cast import Cast, Revisions
from engine.runtime.editions import Hindered
from engine.runtime.effector import Effector
from engine.runtime.instance_book import InstanceBook, Page
from engine.runtime.witness import end_of
from engine.workflows.batch import Batch, decide_all
from engine.workflows.binding import problem_of_code
from engine.workflows.commands import InstanceCommand
from engine.workflows.decision import abort_at, decided_at
from engine.workflows.instance import Instance
from engine.workflows.starter import starter_id
from engine.workflows.steps import Code, waiting
from engine.workflows.workflow import Workflow
from streams.clock import Clock
from streams.commands import Advance, CancelWorkflow, StepDone, WorkflowCommand
from streams.errors import Unavailable, UnreadableEvent, VersionConflict

ROUNDS_MAX: Final = 1_000
"""Most decisions for a few commands: an instance has 100 steps, what does not fit in one commit
comes with the next, and others may win some races."""

EARLY_S: Final = 0.002
"""First wait before an instance is looked for again that is called for; doubles each time."""

EARLY_LOOKS: Final = 3
"""Looks after the first one: 14 ms in all. Source: a first commit is stored 0.5 to 10 ms after the
call for it, on one server, more if the server syncs each write."""

NO_SUCH_INSTANCE: Final = "no_such_instance"
NO_SUCH_CODE: Final = "no_such_code"
CLOSED: Final = "workflow_closed"
UNREADABLE: Final = "unreadable_journal"

UNENDED: Final = Obstacle("attempt_not_ended", "its journal does not show the end it is told of")

log = structlog.get_logger("vigil.conductor")


@dataclass(frozen=True)
class InstanceDesk:
    """Decides for the instances of one workflow, on one node."""

    workflow: str
    """Its name. An instance goes on as it was when that was begun, even if nothing begins now."""
    cast: Cast
    editions: Revisions
    clock: Clock
    book: InstanceBook
    effector: Effector

    async def put(
        self, instance_id: str, commands: Sequence[WorkflowCommand]
    ) -> Mapping[int, Obstacle]:
        """Do all that comes of `commands` to one instance.

        Returns:
            Which of them are to come again, and why: the ends that they tell of cannot be seen yet;
            the instance is to be stopped first, for this node lacks what it needs to go on; or it
            waits for a workflow to begin, and one of them has it looked at again.

        Raises:
            Hindered: nothing was done about any of them.
            Unavailable: the log is away. Put all of them again.
        """
        try:
            page = await self._read(instance_id, commands)
            workflow, later = await self._as_far_as_it_can(page, instance_id, commands)
            now = [number for number in range(len(commands)) if number not in later]
            said = await asyncio.gather(
                *(self._said(commands[number], page.instance) for number in now)
            )
            # A timer fires by the servers' clock, which may be ahead of ours: is it time by then?
            page.is_timer_unknown |= any(isinstance(each, Advance) for each in commands)
            await self._decide(page, workflow, [each for each in said if each is not None])
        except UnreadableEvent as error:
            detail = f"this version cannot read it: {error}"
            raise Hindered(Obstacle(UNREADABLE, detail)) from error
        if page.is_timer_unknown:
            await self.effector.arm(page)
        self.book.keep(page)
        unended = (number for number, each in zip(now, said, strict=True) if each is None)
        again = {**later, **dict.fromkeys(unended, UNENDED)}
        lack = self._lack(page)
        return again if lack is None else {0: lack, **again}

    async def _read(self, instance_id: str, commands: Sequence[WorkflowCommand]) -> Page:
        """Return an instance; wait a little for one that is called for: the call goes first."""
        page = await self.book.read(instance_id)
        is_called = any(isinstance(each, Advance) for each in commands)
        for look in range(EARLY_LOOKS if is_called else 0):
            if page.instance.started is not None:
                break
            await self.clock.sleep(EARLY_S * 2**look)
            await self.book.catch_up(page, instance_id)
        return page

    async def _as_far_as_it_can(
        self, page: Page, instance_id: str, commands: Sequence[WorkflowCommand]
    ) -> tuple[Workflow, Mapping[int, Obstacle]]:
        """Return the workflow as an instance has it, and which commands are to come later, and why.

        What stops an instance needs no function of its steps: the first event holds all that is
        left to do. So it can be stopped by a node that could not go on with it.

        Raises:
            Hindered: the instance is not there, or this node lacks what it needs.
            Unavailable: the log is away.
        """
        if page.instance.started is None:
            detail = f"the journal holds no instance {instance_id}"
            raise Hindered(Obstacle(NO_SUCH_INSTANCE, detail))
        if not page.instance.goes_on:  # It begins no more steps.
            return Workflow(self.workflow), {}
        try:
            return await self._as_begun(page), {}
        except Hindered as hindered:
            stops = [number for number, each in enumerate(commands) if _stops(each)]
            if not stops and not self._is_over_time(page.instance):
                raise
            others = set(range(len(commands))).difference(stops)
            return Workflow(self.workflow), dict.fromkeys(others, hindered.obstacle)

    def _is_over_time(self, instance: Instance) -> bool:
        over_at = abort_at(instance)
        return over_at is not None and over_at <= decided_at(instance, self.clock.now())

    async def _as_begun(self, page: Page) -> Workflow:
        """Return the workflow as an instance has it.

        Raises:
            Hindered: this node lacks what it needs.
            Unavailable: the log is away.
        """
        spec, workflow = page.instance.begun.spec, self.cast.workflows.get(self.workflow)
        if spec.revision not in (0, workflow.revision if workflow else 0):
            workflow = await self.editions.workflow(self.workflow, spec.revision)
        if workflow is None:
            raise Hindered(Obstacle(NO_SUCH_CODE, f"there is no workflow {self.workflow!r}"))
        if problem := problem_of_code(spec, workflow):
            raise Hindered(Obstacle(NO_SUCH_CODE, problem))
        return workflow

    def _closed(self, instance: Instance) -> frozenset[str]:
        """Return which workflows that steps of an instance run cannot begin here now."""
        subs = (step.workflow for step in instance.begun.spec.steps if step.task is None)
        return frozenset(subs) - self.cast.workflows.keys()

    def _lack(self, page: Page) -> Obstacle | None:
        """Return which workflow steps wait for that would begin now; None: they wait for none.

        One that is closed may stay so for long, and nobody is at fault.
        """
        now = decided_at(page.instance, self.clock.now())
        place = next(waiting(page.instance, page.closed, at=now), None)
        if place is None:
            return None
        missing = page.instance.specs[place[0]].workflow
        reason = CLOSED if starter_id(missing) in self.cast.closed else NO_SUCH_CODE
        return Obstacle(reason, f"there is no workflow {missing!r} to begin")

    async def _said(self, command: WorkflowCommand, instance: Instance) -> InstanceCommand | None:
        if isinstance(command, StepDone):
            return await end_of(self.book.ports, command, instance)
        return command

    async def _decide(self, page: Page, workflow: Workflow, left: list[InstanceCommand]) -> None:
        """Put what is `left`, and whatever follows by itself."""
        id_ = page.instance.begun.instance_id
        advance = Advance(workflow=workflow.name, instance_id=id_)
        stack = self.book.ports.stack.name
        for _ in range(ROUNDS_MAX):
            left += await self.effector.follow(page)
            # What was called off just now, because its workflow has gone, is not to begin again.
            page.closed = self._closed(page.instance)
            code = Code(workflow=workflow, stack=stack, closed=page.closed)
            now = decided_at(page.instance, self.clock.now())
            batch = decide_all(page.instance, left or [advance], code=code, at=now)
            try:
                is_sure = await self._write(page, batch, id_)
            except VersionConflict:
                is_sure = False
            if not is_sure:
                await self._catch_up(page, id_)
                continue
            if not left and not batch.events:
                return
            _note_refused(left, batch)
            left = left[batch.taken :]
        raise Unavailable(id_, detail="it does not come to rest")

    async def _write(self, page: Page, batch: Batch, instance_id: str) -> bool:
        """Write what was decided; return whether it was decided on the newest version."""
        if not batch.events:
            return await self.book.is_newest(page, instance_id)
        at = decided_at(page.instance, self.clock.now())
        await self.book.write(page, batch.events, at=at)
        return True

    async def _catch_up(self, page: Page, instance_id: str) -> None:
        before = page.instance.version
        await self.book.catch_up(page, instance_id)
        if page.instance.version == before:
            raise Unavailable(instance_id, detail="what a replica holds is not the newest")


def _stops(command: WorkflowCommand) -> bool:
    return isinstance(command, CancelWorkflow)


def _note_refused(commands: Sequence[InstanceCommand], batch: Batch) -> None:
    for number, why in batch.refused:
        log.info("refused", command=type(commands[number]).__name__, why=why)
