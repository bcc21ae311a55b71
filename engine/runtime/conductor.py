"""Has the instances of a workflow go on: pulls the commands to them, and answers for each.

Commands to one instance that a node has at the same time are put to it together; those to different
instances at the same time.

Whoever begins an instance calls for it first, so the call may be here before the beginning. It
waits for that, for longer than a beginning can take to arrive, and goes if none does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import telemetry
from engine.backoff import backoff_s
from engine.obstacle import Obstacle
from engine.runtime.editions import Hindered
from engine.runtime.hands import Hands
from engine.runtime.instance_desk import CLOSED, NO_SUCH_INSTANCE, InstanceDesk
from engine.runtime.intake import taking
from engine.runtime.permit import Permit
from engine.runtime.slots import Slots
from engine.runtime.undertaker import Undertaker
from engine.runtime.waits import wait_first
from engine.workflows.starter import starter_id
from streams import codec
from streams.commands import Advance, WorkflowCommand
from streams.delivery import Delivery, Source, Unreadable
from streams.errors import Unavailable, UnreadableEvent
from streams.parsing import inbox_of
from streams.ports import Ports
from streams.tracing import context_of

IN_FLIGHT_MAX: Final = 256
"""Commands to instances of one workflow that one node has at a time."""

TOGETHER_MAX: Final = 64
"""Commands to one instance that are put to it together."""

WAIT_S: Final = 5.0
"""Longest silent wait for commands; only how often an idle conductor looks up."""

BUSY_S: Final = 0.05
"""First wait before a command comes again that could not be followed; doubles each time."""

BUSY_MAX_S: Final = 60.0
"""Longest such wait."""

HOPELESS_DELIVERIES: Final = 70
"""Deliveries of a command that no node can follow before it is a dead letter, at least."""

HOPELESS_S: Final = 3_600.0
"""Age of such a command, at least: longer than a deploy takes to bring a node that can."""

EARLY_MAX_S: Final = 10.0
"""Longest wait before a call comes again whose instance has not begun: a cause comes again after as
long, if whoever was to begin its instance has died."""

UNBEGUN_DELIVERIES: Final = 20
"""Deliveries of such a call before it goes, at least: the machines may have slept meanwhile."""

UNBEGUN_S: Final = 300.0
"""Age of such a call, at least, in seconds. A call that is sent within 120 of another one is that
one, by the streams' window for duplicates. What was sent after it may arrive 162 later: a node
tries for 60 to have it stored, and its kernel for 102 more (`openings.BELATED_S`)."""

NOTED_MAX: Final = 1_000
"""Most instances remembered for which was said why this node cannot have them."""

Incoming: TypeAlias = Delivery[WorkflowCommand | Unreadable]

Pulled: TypeAlias = tuple[WorkflowCommand, Incoming]
"""A command, and the delivery that it came in."""

log = structlog.get_logger("vigil.conductor")


@dataclass
class Conductor:
    """The conductor of one workflow on one node."""

    ports: Ports
    desk: InstanceDesk
    permit: Permit
    undertaker: Undertaker
    hands: Hands
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open."""
    _room: Slots = field(default_factory=lambda: Slots(IN_FLIGHT_MAX))
    _lines: dict[str, deque[Pulled]] = field(default_factory=dict)
    """Instance → commands that wait while others are put to it."""
    _noted: set[str] = field(default_factory=set)
    """Instances of which was said why this node cannot have them."""

    @property
    def _actor(self) -> str:
        return starter_id(self.desk.workflow)

    async def serve(self) -> None:
        """Take commands for as long as the node may run the workflow. What was taken is done.

        Raises:
            Unavailable: the queue could not be opened.
        """
        labels = {"actor": self._actor, "queue": "instances"}
        opening, withdrawn = self._opening(), self.permit.withdrawn
        async with taking(opening, stopping=withdrawn) as source:
            self.is_open.set()
            while not withdrawn.is_set():
                if not self._room.free:
                    await source.pause()
                    await wait_first(self._room.wait_free(), withdrawn.wait())
                    continue
                for delivery in await source.receive(room=self._room.free, wait_s=WAIT_S):
                    if withdrawn.is_set():
                        await delivery.nak()
                    else:
                        self._take(delivery)
                telemetry.backlog.set(source.pending, labels)

    def _opening(self) -> Awaitable[Source[WorkflowCommand | Unreadable]]:
        return self.ports.inbox.open_workflow(self.desk.workflow)

    def _take(self, delivery: Incoming) -> None:
        """Have a command put to its instance, behind those that are being put to it."""
        self._room.take_late()
        content = delivery.content
        if isinstance(content, Unreadable):
            return self.hands.start(self._bury_unreadable(content, delivery))
        line = self._lines.get(content.instance_id)
        if line is not None:
            return line.append((content, delivery))
        self._lines[content.instance_id] = deque([(content, delivery)])
        return self.hands.start(self._conduct(content.instance_id))

    async def _conduct(self, instance_id: str) -> None:
        """Answer for all that is in an instance's line, and for what joins it meanwhile."""
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
        """Put commands to their instance, and answer for each.

        Raises:
            Unavailable: the log is away. Not all of them are answered for.
        """
        commands = [command for command, _ in pulled]
        workflow, trace = self.desk.workflow, pulled[0][1].trace
        try:
            with (
                bound_contextvars(instance_id=instance_id, workflow=workflow),
                telemetry.span("workflow", context_of(trace)),
            ):
                again = await self.desk.put(instance_id, commands)
                for number, (command, delivery) in enumerate(pulled):
                    await (
                        self._refuse(command, delivery, again[number])
                        if number in again
                        else delivery.ack()
                    )
        except Hindered as hindered:
            if not all(_is_early(command, hindered.obstacle) for command in commands):
                self._note(instance_id, hindered.obstacle)
            for command, delivery in pulled:
                await self._refuse(command, delivery, hindered.obstacle)

    async def _refuse(
        self, command: WorkflowCommand, delivery: Incoming, hindrance: Obstacle
    ) -> None:
        """Leave a command to another node, or to a person if none has followed it for long.

        What waits for a workflow that is disabled waits for as long as that is. Who may take no
        more commands has seen a node come that can follow them, or goes: then it is tried at once.
        """
        if not self.permit.is_given:
            return await delivery.nak()
        age_s = (self.desk.clock.now() - delivery.at).total_seconds()
        if _is_early(command, hindrance):
            return await self._await_beginning(command, delivery, age_s=age_s)
        is_young = delivery.deliveries < HOPELESS_DELIVERIES or age_s < HOPELESS_S
        if is_young or hindrance.reason == CLOSED:
            return await _hand_back(delivery)
        subject = inbox_of(self.ports.stack, command)
        letter = Unreadable(
            reason=hindrance.reason,
            detail=hindrance.detail,
            stream=self.ports.stack.stream_of(subject),
            seq=delivery.seq,
            subject=subject,
            headers={},
            data=codec.encode_command(command),
        )
        return await self._bury(letter, delivery)

    async def _await_beginning(
        self, command: WorkflowCommand, delivery: Incoming, *, age_s: float
    ) -> None:
        """Let a call come again whose instance has not begun, unless that does not begin any more.

        A replica may not show yet what has begun, so the log's leader has the last word.
        """
        is_young = delivery.deliveries < UNBEGUN_DELIVERIES or age_s < UNBEGUN_S
        if is_young or await self._has_begun(command.instance_id):
            delay_s = backoff_s(delivery.deliveries, first_s=BUSY_S, most_s=EARLY_MAX_S)
            return await delivery.nak(delay_s=delay_s)
        log.info("a call goes: what it is for has never begun", instance_id=command.instance_id)
        return await delivery.ack()

    async def _has_begun(self, instance_id: str) -> bool:
        try:
            newest = await self.ports.log.last(self.ports.stack.workflow(instance_id))
        except UnreadableEvent:  # Of a newer version, but there.
            return True
        return newest is not None

    def _note(self, instance_id: str, hindrance: Obstacle) -> None:
        """Say once why this node cannot have the instance."""
        if instance_id in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted.add(instance_id)
        why = {"reason": hindrance.reason, "why": hindrance.detail}
        log.warning("commands handed back", instance_id=instance_id, **why)

    async def _bury_unreadable(self, content: Unreadable, delivery: Incoming) -> None:
        try:
            await self._bury(content, delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            await _hand_back(delivery)
        finally:
            self._make_room(1)

    async def _bury(self, letter: Unreadable, delivery: Incoming) -> None:
        await self.undertaker.bury(letter, actor_id=self._actor)
        await delivery.term(letter.reason)

    def _make_room(self, places: int) -> None:
        for _ in range(places):
            self._room.give_back()


async def _hand_back(delivery: Incoming) -> None:
    """Let a command come again, later each time."""
    await delivery.nak(delay_s=backoff_s(delivery.deliveries, first_s=BUSY_S, most_s=BUSY_MAX_S))


def _is_early(command: WorkflowCommand, hindrance: Obstacle) -> bool:
    """Return whether a command calls to what may be about to begin."""
    return hindrance.reason == NO_SUCH_INSTANCE and isinstance(command, Advance)
