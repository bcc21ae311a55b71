"""Handles the commands of a workflow's instances: read → effects → decide → write → effects.

Commands to one instance are decided together, those to different instances concurrently. No lease
is needed: of two nodes that decide on the same version one writes, and the other reads again. A
command is acknowledged once nothing more follows and all effects are done; if the node dies before,
the next one first repeats the effects of the newest commit. A command may arrive before the first
commit of its instance: it waits longer than that commit can take, and is dropped if none comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import telemetry
from engine.app.workflow import Workflow
from engine.app.workflow_plan import problem_of_code, starter_id
from engine.dead_letters.write import DeadLetterWriter
from engine.runtime.catalog import CannotRun, Catalog, Hindrance, Revisions
from engine.runtime.consumer import Queue, RetryPolicy, Service, consumer_service
from engine.runtime.context import ActorContext, NodeContext
from engine.runtime.permits import Permit
from engine.runtime.slots import Slots
from engine.waits.deciders import with_groups
from engine.workflows.decide import DecidedBatch, abort_at, decide_all, decided_at
from engine.workflows.effector import Effector, end_of
from engine.workflows.instance import OVERLAP, Instance, InstanceCommand
from engine.workflows.steps import Code, waiting
from engine.workflows.store import InstanceStore, StoredInstance
from engine.workflows.subjects import Standing, Subjects, displaced
from streams.clock import Clock
from streams.errors import Unavailable, UnreadableEvent, VersionConflict
from streams.model.commands import (
    Advance,
    CancelWorkflow,
    DecideStep,
    StepDone,
    WorkflowCommand,
)
from streams.ports.delivery import Delivery, Unreadable
from streams.tracing import context_of
from streams.wire import codec
from streams.wire.messages import inbox_of

ROUNDS_MAX: Final = 1_000
"""Most decisions for a few commands: an instance has 100 steps, what does not fit in one commit
comes with the next, and others may win some races."""

EARLY_S: Final = 0.002
"""First wait before an instance that has not begun is read again; doubles each time."""

EARLY_LOOKS: Final = 3
"""Reads after the first one: 14 ms in all. Source: a first commit is stored 0.5 to 10 ms after its
command, on one server, more if the server syncs each write."""

NO_SUCH_INSTANCE: Final = "no_such_instance"

NO_SUCH_CODE: Final = "no_such_code"

CLOSED: Final = "workflow_closed"

UNREADABLE: Final = "unreadable_journal"

UNENDED: Final = Hindrance("attempt_not_ended", "its journal does not show the end it is told of")


IN_FLIGHT_MAX: Final = 256
"""Commands to instances of one workflow that one node has at a time."""

TOGETHER_MAX: Final = 64
"""Commands to one instance that are decided together."""

BUSY_S: Final = 0.05
"""First redelivery delay of a command that cannot be handled; doubles each time."""

BUSY_MAX_S: Final = 60.0
"""Longest such delay."""

HOPELESS_DELIVERIES: Final = 70
"""Deliveries of a command that no node can handle before it is a dead letter, at least."""

HOPELESS_S: Final = 3_600.0
"""Age of such a command, at least: longer than a deploy takes to bring a node that can."""

EARLY_MAX_S: Final = 10.0
"""Longest redelivery delay of a command whose instance has not begun: a cause is redelivered after
as long, if its node has died."""

UNBEGUN_DELIVERIES: Final = 20
"""Deliveries of such a command before it is dropped, at least: the machines may have slept
meanwhile."""

UNBEGUN_S: Final = 300.0  # guard: call-patience-covers-beginning
"""Age of such a command, at least, in seconds. One that is sent within 120 of another one is that
one, by the streams' window for duplicates. What was sent after it may arrive 162 later: a node
tries for 60 to have it stored, and its kernel for 102 more (`ARRIVES_S_MAX` of
`engine.triggers.evaluate`)."""

NOTED_MAX: Final = 1_000
"""Most instances for which it is remembered that their problem was logged."""

Incoming: TypeAlias = Delivery[WorkflowCommand | Unreadable]

Pulled: TypeAlias = tuple[WorkflowCommand, Incoming]
"""A command, and the delivery that it came in."""

log = structlog.get_logger("vigil.workflows")


@dataclass(frozen=True)
class InstanceHandler:
    """Decides for the instances of one workflow, on one node."""

    workflow: str
    """Its name. An instance goes on as it began, even if the workflow is disabled now."""
    catalog: Catalog
    revisions: Revisions
    clock: Clock
    store: InstanceStore
    effector: Effector

    async def put(
        self, instance_id: str, commands: Sequence[WorkflowCommand]
    ) -> Mapping[int, Hindrance]:
        """Do all that follows from `commands`; return those to be redelivered, and why."""
        # The ends that they report cannot be seen yet; this node can only stop the instance; or it
        # waits for a workflow that cannot start now.
        try:
            stored = await self._read(instance_id, commands)
            stored.standing = await Subjects(self.store.ports).standing(stored.instance)
            if stored.standing is Standing.DISPLACED:
                commands = [*commands, displaced(stored.instance)]
            workflow, later = await self._as_far_as_it_can(stored, instance_id, commands)
            now = [number for number in range(len(commands)) if number not in later]
            said = await asyncio.gather(
                *(self._said(commands[number], stored.instance) for number in now)
            )
            # A timer fires by the servers' clock, which may be ahead of ours: is it time by then?
            # guard: early-instance-timer-rearmed
            stored.is_timer_unknown |= any(isinstance(each, Advance) for each in commands)
            await self._decide(stored, workflow, [each for each in said if each is not None])
        except UnreadableEvent as error:
            detail = f"this version cannot read it: {error}"
            raise CannotRun(Hindrance(UNREADABLE, detail)) from error
        if stored.is_timer_unknown:
            await self.effector.arm(stored)
        self.store.keep(stored)
        unended = (number for number, each in zip(now, said, strict=True) if each is None)
        again = {**later, **dict.fromkeys(unended, UNENDED)}
        lack = self._lack(stored)
        return again if lack is None else {0: lack, **again}  # guard: workflow-waiter-looked-again

    async def _read(self, instance_id: str, commands: Sequence[WorkflowCommand]) -> StoredInstance:
        """Return an instance; wait a little for one whose first commit follows its command."""
        stored = await self.store.read(instance_id)
        is_called = any(isinstance(each, Advance) for each in commands)
        for look in range(EARLY_LOOKS if is_called else 0):  # guard: call-just-before-beginning
            if stored.instance.started is not None:
                break
            await self.clock.sleep(EARLY_S * 2**look)
            await self.store.catch_up(stored, instance_id)
        return stored

    async def _as_far_as_it_can(
        self, stored: StoredInstance, instance_id: str, commands: Sequence[WorkflowCommand]
    ) -> tuple[Workflow, Mapping[int, Hindrance]]:
        """Return the workflow as an instance has it, and which commands must wait, and why."""
        # To stop an instance needs none of its functions, so a node that could not go on with it
        # can.
        if stored.instance.started is None:
            detail = f"the journal holds no instance {instance_id}"
            raise CannotRun(Hindrance(NO_SUCH_INSTANCE, detail))
        # guard: over-needs-no-code
        if not stored.instance.goes_on:  # It begins no more steps.
            return Workflow(self.workflow), {}
        try:
            return await self._as_begun(stored), {}
        except CannotRun as refusal:
            # guard: cancel-needs-no-functions
            stops = [number for number, each in enumerate(commands) if _stops(each)]
            # guard: timeout-needs-no-functions
            if not stops and not self._is_over_time(stored.instance):
                raise
            # guard: functionless-stopped-first
            others = set(range(len(commands))).difference(stops)
            return Workflow(self.workflow), dict.fromkeys(others, refusal.hindrance)

    def _is_over_time(self, instance: Instance) -> bool:
        over_at = abort_at(instance)
        return over_at is not None and over_at <= decided_at(instance, self.clock.now())

    async def _as_begun(self, stored: StoredInstance) -> Workflow:
        spec, workflow = stored.instance.begun.spec, self.catalog.workflows.get(self.workflow)
        # guard: instance-keeps-definition
        if spec.revision not in (0, workflow.revision if workflow else 0):
            workflow = await self.revisions.workflow(self.workflow, spec.revision)
        if workflow is None:
            raise CannotRun(Hindrance(NO_SUCH_CODE, f"there is no workflow {self.workflow!r}"))
        if problem := problem_of_code(spec, workflow):
            raise CannotRun(Hindrance(NO_SUCH_CODE, problem))  # guard: missing-code-leaves-instance
        return workflow

    def _closed(self, instance: Instance) -> frozenset[str]:
        """Return the nested workflows of an instance that cannot start here now."""
        subs = (step.workflow for step in instance.begun.spec.steps if step.task is None)
        return frozenset(subs) - self.catalog.workflows.keys()

    def _lack(self, stored: StoredInstance) -> Hindrance | None:
        if stored.standing is not Standing.FREE:  # Nothing of it is due.
            return None
        now = decided_at(stored.instance, self.clock.now())
        place = next(waiting(stored.instance, stored.closed, at=now), None)
        if place is None:
            return None
        missing = stored.instance.specs[place[0]].workflow
        reason = CLOSED if starter_id(missing) in self.catalog.closed else NO_SUCH_CODE
        return Hindrance(reason, f"there is no workflow {missing!r} to begin")

    async def _said(self, command: WorkflowCommand, instance: Instance) -> InstanceCommand | None:
        if isinstance(command, StepDone):
            return await end_of(self.store.ports, command, instance)
        return command

    async def _decide(
        self, stored: StoredInstance, workflow: Workflow, left: list[InstanceCommand]
    ) -> None:
        id_ = stored.instance.begun.instance_id
        advance = Advance(workflow=workflow.name, instance_id=id_)
        stack = self.store.ports.stack.name
        for _ in range(ROUNDS_MAX):
            left += await self.effector.follow(stored)
            # What was called off just now, because its workflow has gone, is not to begin again.
            stored.closed = self._closed(stored.instance)  # guard: called-off-start-waits
            is_held = stored.standing is not Standing.FREE
            code = Code(workflow=workflow, stack=stack, closed=stored.closed, is_held=is_held)
            now = decided_at(stored.instance, self.clock.now())
            left[:] = [await self._known(stored.instance, each) for each in left]
            batch = decide_all(stored.instance, left or [advance], code=code, at=now)
            try:
                is_sure = await self._write(stored, batch, id_)
            except VersionConflict:
                is_sure = False
            if not is_sure:
                await self._catch_up(stored, id_)
                continue
            if not left and not batch.events:
                return
            _note_refused(left, batch)
            left = left[batch.taken :]
        raise Unavailable(id_, detail=f"it is not settled after {ROUNDS_MAX:,} rounds")

    async def _known(self, instance: Instance, command: InstanceCommand) -> InstanceCommand:
        """Return a command, if it is a decision with the groups of who has made it."""
        if not isinstance(command, DecideStep):
            return command
        step = instance.steps.get(command.step)
        asked = None if step is None or step.asked is None else step.asked.approval
        return await with_groups(self.store.ports, self.clock, command, asked)

    async def _write(self, stored: StoredInstance, batch: DecidedBatch, instance_id: str) -> bool:
        if not batch.events:
            return await self.store.is_newest(stored, instance_id)  # guard: drop-after-version-look
        at = decided_at(stored.instance, self.clock.now())
        await self.store.write(stored, batch.events, at=at)
        return True

    async def _catch_up(self, stored: StoredInstance, instance_id: str) -> None:
        before = stored.instance.version
        await self.store.catch_up(stored, instance_id)
        if stored.instance.version == before:
            raise Unavailable(instance_id, detail="what a replica holds is not the newest")


def _stops(command: WorkflowCommand) -> bool:
    return isinstance(command, CancelWorkflow)


def _note_refused(commands: Sequence[InstanceCommand], batch: DecidedBatch) -> None:
    for number, why in batch.refused:
        log.info("refused", command=type(commands[number]).__name__, why=why)


@dataclass
class WorkflowWorker:
    """Takes the commands to the instances of one workflow, on one node."""

    context: NodeContext
    handler: InstanceHandler
    permit: Permit
    """Whether the node may run the workflow."""
    _room: Slots = field(default_factory=lambda: Slots(IN_FLIGHT_MAX))
    _lines: dict[str, deque[Pulled]] = field(default_factory=dict)
    """Instance → commands that wait while others are handled."""
    _noted: set[str] = field(default_factory=set)
    """Instances whose problem was logged."""

    @property
    def _actor(self) -> str:
        return starter_id(self.handler.workflow)

    def service(self) -> Service:
        """Return the service that takes commands whenever the node may. What was taken is done."""
        queue = Queue(
            open=lambda: self.context.ports.commands.open_workflow(self.handler.workflow),
            labels={"actor": self._actor, "queue": "instances"},
        )
        clock = self.context.clock
        return consumer_service(queue, self._take, room=self._room, permit=self.permit, clock=clock)

    async def _take(self, delivery: Incoming, _asked_s: float) -> None:
        """Queue a command behind the others of its instance."""
        self._room.take_late()
        content = delivery.content
        if isinstance(content, Unreadable):
            return self.context.tasks.start(self._reject_unreadable(content, delivery))
        line = self._lines.get(content.instance_id)
        if line is not None:
            return line.append((content, delivery))
        self._lines[content.instance_id] = deque([(content, delivery)])
        return self.context.tasks.start(self._conduct(content.instance_id))

    async def _conduct(self, instance_id: str) -> None:
        """Handle all queued commands of an instance, and those that come meanwhile."""
        line = self._lines[instance_id]
        try:
            while line:
                together = [line.popleft() for _ in range(min(len(line), TOGETHER_MAX))]
                await self._answer(instance_id, together)
        finally:
            del self._lines[instance_id]
            self._make_room(len(line))  # What is left there comes again.

    async def _answer(self, instance_id: str, pulled: Sequence[Pulled]) -> None:
        try:
            await self._put(instance_id, pulled)
        except Unavailable as error:
            log.warning("commands handed back: the log is away", error=str(error))
            for _, delivery in pulled:
                await _hand_back(delivery)
        finally:
            self._make_room(len(pulled))

    async def _put(self, instance_id: str, pulled: Sequence[Pulled]) -> None:
        commands = [command for command, _ in pulled]
        workflow, trace = self.handler.workflow, pulled[0][1].trace
        try:
            with (
                bound_contextvars(instance_id=instance_id, workflow=workflow),
                telemetry.span("workflow", context_of(trace)),
            ):
                again = await self.handler.put(instance_id, commands)
                for number, (command, delivery) in enumerate(pulled):
                    await (
                        self._refuse(command, delivery, again[number])
                        if number in again
                        else delivery.ack()
                    )
        except CannotRun as refusal:
            # guard: early-call-untold
            if not all(_is_early(command, refusal.hindrance) for command in commands):
                self._note(instance_id, refusal.hindrance)
            for command, delivery in pulled:
                await self._refuse(command, delivery, refusal.hindrance)

    async def _refuse(
        self, command: WorkflowCommand, delivery: Incoming, hindrance: Hindrance
    ) -> None:
        """Leave a command to another node; in the end write a dead letter."""
        # A disabled workflow may stay so for long: then there is no dead letter. Without a permit,
        # another node can take the command or this one stops: it is tried elsewhere at once.
        if not self.permit.is_given:  # guard: unfollowable-command-free
            return await delivery.nak()
        if _is_early(command, hindrance):  # guard: vain-call-no-letter
            return await self._await_beginning(command, delivery)
        hopeless = RetryPolicy(BUSY_S, BUSY_MAX_S, HOPELESS_DELIVERIES, HOPELESS_S)
        is_young = not hopeless.is_over(delivery, now=self.handler.clock.now())
        if is_young or hindrance.reason == CLOSED:  # guard: disabled-wait-not-given-up
            return await _hand_back(delivery)
        stack = self.context.ports.stack
        subject = inbox_of(stack, command)
        letter = Unreadable(
            reason=hindrance.reason,
            detail=hindrance.detail,
            stream=stack.stream_of(subject),
            seq=delivery.seq,
            subject=subject,
            headers={},
            data=codec.encode_command(command),
        )
        return await self._write_dead_letter(letter, delivery)

    async def _await_beginning(self, command: WorkflowCommand, delivery: Incoming) -> None:
        """Hand back a command whose instance has not begun, or drop it if it never will."""
        # guard: call-waits-late-beginning
        early = RetryPolicy(BUSY_S, EARLY_MAX_S, UNBEGUN_DELIVERIES, UNBEGUN_S)
        is_young = not early.is_over(delivery, now=self.handler.clock.now())
        # guard: call-by-leader-not-replica
        if is_young or await self._has_begun(command.instance_id):
            return await early.hand_back(delivery)
        log.info("a call goes: what it is for has never begun", instance_id=command.instance_id)
        return await delivery.ack()

    async def _has_begun(self, instance_id: str) -> bool:
        try:
            ports = self.context.ports
            newest = await ports.log.last(ports.stack.workflow(instance_id))
        except UnreadableEvent:  # Of a newer version, but there.
            return True
        return newest is not None

    def _note(self, instance_id: str, hindrance: Hindrance) -> None:
        if instance_id in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted.add(instance_id)  # guard: why-not-here-said-once
        why = {"reason": hindrance.reason, "why": hindrance.detail}
        log.warning("commands handed back", instance_id=instance_id, **why)

    async def _reject_unreadable(self, content: Unreadable, delivery: Incoming) -> None:
        try:
            await self._write_dead_letter(content, delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            await _hand_back(delivery)
        finally:
            self._make_room(1)

    async def _write_dead_letter(self, letter: Unreadable, delivery: Incoming) -> None:
        dead_letters = DeadLetterWriter(self.context.ports, self.context.clock)
        await dead_letters.write_message(letter, actor_id=self._actor)
        await delivery.term(letter.reason)

    def _make_room(self, places: int) -> None:
        for _ in range(places):
            self._room.give_back()


async def _hand_back(delivery: Incoming) -> None:
    await RetryPolicy(BUSY_S, BUSY_MAX_S).hand_back(delivery)


def _is_early(command: WorkflowCommand, hindrance: Hindrance) -> bool:
    """Return whether a command may have come before the first commit of its instance."""
    # Who was to be canceled for another one may never begin; a person's cancel is told.
    is_of_overlap = isinstance(command, CancelWorkflow) and command.by == OVERLAP
    is_call = isinstance(command, Advance) or is_of_overlap
    return is_call and hindrance.reason == NO_SUCH_INSTANCE  # guard: other-vain-word-letter


def services_for(context: ActorContext, workflow: str) -> list[Service]:
    """Return what takes the commands of `workflow`, on the node of its starter's context."""
    catalog, ports, clock = context.catalog, context.ports, context.clock
    effector = Effector(catalog, ports, clock, context.node)
    store = InstanceStore(ports, context.writer_ids)
    handler = InstanceHandler(workflow, catalog, context.revisions, clock, store, effector)
    return [WorkflowWorker(context, handler, context.permits.runs).service()]
