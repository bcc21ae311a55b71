"""Handles the commands to episodes: reads the episode, then follows the command or hands it back.

A command that no node has followed for long becomes a dead letter. Decisions and signals have a
queue of their own, so that they need not wait for a slot; an episode that can continue is then
called by a command in the queue of `RunConsumer`, which pulls as many commands as there are slots.
All nodes of an actor share both queues.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import telemetry
from engine.children.collect import ChildrenCollector
from engine.children.rules import awaited
from engine.episodes import open as placing
from engine.episodes import recovery
from engine.episodes.attempt import Attempt, AttemptState
from engine.episodes.episode import ENDED, Episode, Status, fold
from engine.episodes.overlap.store import Holds
from engine.episodes.recovery import NO_SUCH_EPISODE, why_cannot_run
from engine.execution.cancel import CancelHandler, needs_expectation
from engine.execution.parts import ActorParts
from engine.execution.run import deliver_rest, new_attempt, run_episode
from engine.execution.suspects import SuspectRunner
from engine.outputs.handle import OutputHandler, is_about_outputs
from engine.runtime.catalog import CannotRun, Hindrance
from engine.runtime.consumer import Queue, RetryPolicy, Service, consumer_service
from engine.runtime.slots import Slots
from engine.waits import parked
from engine.waits.handle import WaitHandler, is_newest
from engine.waits.wait import is_answered, step_answered
from streams.errors import Unavailable, UnreadableEvent
from streams.model.commands import (
    Attend,
    Attending,
    Cancel,
    Carry,
    ChildEnded,
    Command,
    Recover,
    Start,
)
from streams.model.events import EpisodeResolved
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.log import Recorded
from streams.tracing import context_of

BUSY_S: Final = 0.05
"""First wait before a command comes again whose episode is not free; doubles each time."""

BUSY_MAX_S: Final = 10.0
"""Longest such wait."""

HINDRANCE_MAX_S: Final = 60.0
"""Longest wait before a command comes again whose episode this node cannot have."""

MISSING_DELIVERIES_MAX: Final = 12
"""Deliveries of a command before an episode that the journal lacks counts as missing, at least:
about 2 minutes of waits. A replica may show an opening later than the command that follows it, and
an event that comes again may open an episode later than its recovery is called.
"""

MISSING_S: Final = 120.0
"""Age of such a command, at least: deliveries that ended for want of a slot are counted, too."""

HINDRANCE_DELIVERIES_MAX: Final = 70
"""Deliveries of a command that no node can follow before it is a dead letter, at least: about an
hour of waits, which is longer than a deploy takes to bring a node that can."""

HINDRANCE_S: Final = 3_600.0

OTHER_CODE_MAX_S: Final = 2.0
"""Longest wait before a command comes again that is for a node with other code. That is up, most
likely: it was the one to find the episode parked.
"""

OTHER_CODE_DELIVERIES_MAX: Final = 360
"""Deliveries of a command, at least, before a node tries an episode by code that was tried: about
an hour of waits.
"""

OTHER_CODE_LANED_DELIVERIES_MAX: Final = 12

OTHER_CODE_LANED_S: Final = 20.0
"""The same for an episode that has a place in its lane meanwhile, which others wait for."""

WRONG_QUEUE: Final = Hindrance("wrong_queue", "it was not sent to the queue of its kind")
"""No engine sends such a command."""

NOTED_MAX: Final = 10_000
"""Episodes remembered because this node cannot have them. Forgetting them repeats a log line."""

Incoming: TypeAlias = Delivery[Command | Unreadable]


ROOM_MAX: Final = 16
"""Commands of one actor that a node decides on at a time. Each is a few requests to the server and
some milliseconds; a node that cannot reach it keeps no more of them than this.
"""


SLOT_S: Final = 1.0
"""Longest wait of a command that was pulled for a slot that has been taken since."""

log = structlog.get_logger("vigil.execution")


@dataclass(frozen=True, kw_only=True)
class CommandContext:
    """A command, and the episode that it is about."""

    parts: ActorParts
    """Has the actor's version by which the episode was opened."""
    delivery: Incoming
    command: Command
    episode: Episode
    """The fold of `records`."""
    records: Sequence[Recorded]


def _span(trace: str) -> AbstractContextManager[object]:
    return telemetry.span("episode", context_of(trace))


def _trace_of(records: Sequence[Recorded]) -> str:
    """Return the trace of an episode: who asks for its recovery knows none."""
    # guard: trace-goes-on-after-crash
    return records[-1].commit.trace if records else ""


@dataclass
class CommandConsumer(ABC):
    """Handles one queue of commands to one actor's episodes, on one node."""

    parts: ActorParts
    _noted: set[str] = field(default_factory=set, init=False)

    is_of_said: ClassVar[bool]
    """Whether these are decisions and signals; otherwise they call nodes to run episodes."""

    def __post_init__(self) -> None:
        self.context = self.parts.context

    @abstractmethod
    async def _follow(self, ctx: CommandContext) -> bool:
        """Carry a command out, and return whether it is acknowledged."""

    async def _answer(self, delivery: Incoming) -> None:
        """Answer a delivery: follow it, write a dead letter, or hand it back."""
        content = delivery.content
        try:
            if isinstance(content, Unreadable):
                await self.parts.dead_letters.write_message(content, actor_id=self.context.actor.id)
                return await delivery.term(content.reason)
            with (
                bound_contextvars(episode_id=content.episode_id, actor=content.actor_id),
                _span(delivery.trace) if delivery.trace else nullcontext(),
            ):
                await self._answer_command(delivery, content)
        except Unavailable as error:
            log.warning("command handed back: the log is away", error=str(error))
            await hand_back(delivery)

    async def _answer_command(self, delivery: Incoming, command: Command) -> None:
        if isinstance(command, Attending) is not self.is_of_said:  # guard: wrong-queue-followed
            return await self._write_dead_letter(delivery, command, WRONG_QUEUE)
        try:
            ctx = await self._ctx(delivery, command)
        except CannotRun as refusal:
            return await self._refuse(delivery, command, refusal.hindrance)
        with nullcontext() if delivery.trace else _span(_trace_of(ctx.records)):
            is_done = await self._follow(ctx)
        if not is_done:
            await hand_back(delivery)
        return None

    async def _write_dead_letter(
        self, delivery: Incoming, command: Command, why: Hindrance
    ) -> None:
        await self.parts.dead_letters.write_command(
            command, seq=delivery.seq, reason=why.reason, detail=why.detail
        )
        await delivery.term(why.reason)

    async def _ctx(self, delivery: Incoming, command: Command) -> CommandContext:
        subject = self.context.ports.stack.episode(command.episode_id)
        try:
            records = await self.context.ports.log.read(subject)
        except UnreadableEvent as error:
            raise CannotRun(_unreadable(error)) from error
        episode = fold(records)
        # A node can end an episode that it could not run, and record the ends of its children.
        is_mere_end = isinstance(command, Cancel) and not needs_expectation(episode)
        is_of_children = isinstance(command, Attend) and bool(awaited(episode))
        # guard: ends-recorded-without-code
        parts = self.parts if is_mere_end or is_of_children else await self._parts_for(episode)
        return CommandContext(
            parts=parts, delivery=delivery, command=command, episode=episode, records=records
        )

    async def _parts_for(self, episode: Episode) -> ActorParts:
        opened, is_over = episode.opened, episode.status in ENDED
        context = self.context
        if opened is not None and not is_over:
            context = await context.as_opened(opened)
        hindrance = why_cannot_run(context.actor, episode)
        if hindrance is not None:
            raise CannotRun(hindrance)
        return replace(self.parts, context=context)

    async def _refuse(self, delivery: Incoming, command: Command, hindrance: Hindrance) -> None:
        """Leave a command to another node, or to a person if none has followed it for long."""
        if self._is_hopeless(delivery, hindrance):  # guard: hopeless-command-dead-letter
            await self._give_place_back(command, seq=delivery.seq)  # guard: unusable-turn-told
            await self._write_dead_letter(delivery, command, hindrance)
        else:
            self._log_hindrance(command.episode_id, hindrance)
            await hand_back(delivery, most_s=HINDRANCE_MAX_S)

    async def _give_place_back(self, command: Command, *, seq: int) -> None:
        """Let others have the turn of an episode that waits for a person now."""
        # guard: cancel-letter-keeps-turn
        if self.context.is_laned and not isinstance(command, Cancel):
            left = placing.left(command.actor_id, command.episode_id)
            # Another id than its end has: it may be tried again, and end, soon after.
            id_ = f"left.{command.episode_id}.{seq}"
            await self.context.ports.timers.send(left, id=id_)

    def _is_hopeless(self, delivery: Incoming, hindrance: Hindrance) -> bool:
        missing = RetryPolicy(BUSY_S, HINDRANCE_MAX_S, MISSING_DELIVERIES_MAX, MISSING_S)
        other = RetryPolicy(BUSY_S, HINDRANCE_MAX_S, HINDRANCE_DELIVERIES_MAX, HINDRANCE_S)
        retry = missing if hindrance.reason == NO_SUCH_EPISODE else other
        return retry.is_over(delivery, now=self.context.clock.now())

    def _log_hindrance(self, episode_id: str, hindrance: Hindrance) -> None:
        """Log once why this node cannot run the episode."""
        if episode_id in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted.add(episode_id)
        log.warning("command handed back", reason=hindrance.reason, why=hindrance.detail)


def _unreadable(error: UnreadableEvent) -> Hindrance:
    return Hindrance("unreadable_journal", f"this version cannot read it: {error}")


async def hand_back(delivery: Incoming, *, most_s: float = BUSY_MAX_S) -> None:
    """Hand a command back, for longer each time."""
    await RetryPolicy(BUSY_S, most_s).hand_back(delivery)


@dataclass
class AnswerConsumer(CommandConsumer):
    """Handles the decisions and signals for one actor's episodes, on one node."""

    room: Slots = field(default_factory=lambda: Slots(ROOM_MAX))
    is_of_said = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._children = ChildrenCollector(self.context)

    async def handle(self, delivery: Incoming, _asked_s: float) -> None:
        """Handle a delivery in a task of its own."""
        self.room.take_late()  # guard: rulings-at-a-time-max
        self.context.tasks.start(self._hear(delivery))

    async def _hear(self, delivery: Incoming) -> None:
        try:
            await self._answer(delivery)
        finally:
            self.room.give_back()

    async def _answer_command(self, delivery: Incoming, command: Command) -> None:
        if not isinstance(command, ChildEnded):
            return await super()._answer_command(delivery, command)
        try:
            await self._children.hear(command)
        except UnreadableEvent as error:
            return await self._refuse(delivery, command, _unreadable(error))
        return await delivery.ack()

    async def _follow(self, ctx: CommandContext) -> bool:
        if isinstance(ctx.command, Cancel):
            cancellation = CancelHandler(ctx.parts, ctx.command, ctx.delivery)
            return await cancellation.carry_out(ctx.episode, ctx.records)
        context = ctx.parts.context
        # guard: effectless-by-leader
        if not await is_newest(context.ports.log, ctx.records):
            return False
        if is_about_outputs(ctx.command, ctx.episode):
            outputs = OutputHandler(context, ctx.parts.adapters)
            return await outputs.follow(ctx.delivery, ctx.command, ctx.episode, ctx.records)
        handler = WaitHandler(context)
        return await handler.attend(ctx.delivery, ctx.command, ctx.episode, ctx.records)


@dataclass
class RunConsumer(CommandConsumer):
    """Handles the commands that call a node to one actor's episodes, on one node."""

    is_of_said = False

    async def handle(self, delivery: Incoming, _asked_s: float) -> None:
        """Handle a command, in a task and a slot of its own."""
        has_slot = self.context.slots.try_take()
        self.context.tasks.start(self._run(delivery, has_slot=has_slot))

    async def _run(self, delivery: Incoming, *, has_slot: bool) -> None:
        """Handle a delivery in a slot, or hand it back if none gets free soon.

        There was one when it was pulled; an event may have taken it since. A node that may not run
        it waits for none: another may have room at once.
        """
        slots, runs = self.context.slots, self.context.permits.runs
        # guard: stopping-node-waits-no-slot
        if not has_slot and not await slots.take(within_s=SLOT_S, unless=runs.withdrawn):
            return await delivery.nak()
        try:
            await self._answer(delivery)
        finally:
            slots.give_back()

    async def _follow(self, ctx: CommandContext) -> bool:
        if isinstance(ctx.command, Carry):
            return await self._carry(ctx)
        if _has_gone_on(ctx):  # guard: followed-call-answered
            await ctx.delivery.ack()
            return True
        if await self._is_held(ctx):  # guard: overlap-kept-by-own-call
            await ctx.delivery.ack()
            return True
        if self._has_no_turn(ctx):
            return await self._ask_for_place(ctx)
        if self._is_for_other_code(ctx):  # guard: tried-code-hands-back
            await hand_back(ctx.delivery, most_s=OTHER_CODE_MAX_S)
            return True
        if await self._is_turned_away(ctx.episode):  # guard: troubled-node-does-not-begin
            return False
        isolation = self.context.isolation
        if isolation is not None and _is_suspect(ctx):  # guard: suspect-runs-alone
            return await SuspectRunner(ctx.parts.context, isolation, ctx.delivery).run(ctx.episode)
        claims_first = not _is_first_try(ctx)  # guard: repeated-command-may-have-crashed
        attempt = self._attempt(ctx, claims_first=claims_first)
        state = await run_episode(ctx.parts, attempt, ctx.episode, ctx.records)
        return state is not AttemptState.NOT_BEGUN

    def _is_for_other_code(self, ctx: CommandContext) -> bool:
        """Return whether a node with other code is to continue an episode that was parked.

        That node may be gone; after an hour, or 20 s in a lane, this one tries, and parks it again.
        """
        opened, episode = ctx.episode.opened, ctx.episode
        is_open = episode.status in {Status.QUEUED, Status.RUNNING}
        if opened is None or episode.parked is None or not is_open:
            return False
        context = ctx.parts.context
        code, now = context.codes[opened.expectation_id], context.clock.now()
        if parked.is_over(episode, at=now):
            return False
        wait = RetryPolicy(BUSY_S, BUSY_MAX_S, OTHER_CODE_DELIVERIES_MAX, HINDRANCE_S)
        if context.is_laned:  # guard: laned-waits-less-for-code
            least, age_s = OTHER_CODE_LANED_DELIVERIES_MAX, OTHER_CODE_LANED_S
            wait = RetryPolicy(BUSY_S, BUSY_MAX_S, least, age_s)
        return parked.is_tried(episode, code) and not wait.is_over(ctx.delivery, now=now)

    async def _carry(self, ctx: CommandContext) -> bool:
        attempt = self._attempt(ctx, claims_first=True, called_at=ctx.delivery.at)
        if ctx.episode.status in ENDED:
            state = await deliver_rest(ctx.parts, attempt, ctx.episode)
        else:
            state = await run_episode(ctx.parts, attempt, ctx.episode, ctx.records)
        return state is not AttemptState.NOT_BEGUN

    def _attempt(
        self, ctx: CommandContext, *, claims_first: bool, called_at: datetime | None = None
    ) -> Attempt:
        opened = ctx.episode.opened
        assert opened is not None, "an attempt at an episode that was never opened"
        return new_attempt(
            ctx.parts.context,
            opened,
            ctx.episode,
            ctx.delivery,
            claims_first=claims_first,
            called_at=called_at,
            is_called_over=_is_called_over(ctx.command, ctx.episode),
        )

    async def _is_turned_away(self, episode: Episode) -> bool:
        opened = episode.opened
        if opened is None or not _is_untouched(episode):
            return False
        return await self.parts.breakers.turns_away(opened)

    async def _is_held(self, ctx: CommandContext) -> bool:
        """Return whether an episode waits for the end of another one, which calls for it then."""
        opened = ctx.episode.opened
        if opened is None or not opened.held_by or not _is_untouched(ctx.episode):
            return False
        return not await Holds(self.context.ports, self.context.clock).may_start(opened)

    def _has_no_turn(self, ctx: CommandContext) -> bool:
        """Return whether an episode could begin or continue, but lacks its turn."""
        command = ctx.command
        is_admitted = isinstance(command, Start) and command.admitted
        if not self.context.is_laned:
            return False
        if is_answered(ctx.records[-1]):
            # guard: earlier-turn-call-ignored
            return not (is_admitted and _is_call_for_answer(ctx))
        # guard: start-asks-for-turn
        return _is_untouched(ctx.episode) and isinstance(command, Start) and not is_admitted

    async def _ask_for_place(self, ctx: CommandContext) -> bool:
        place = placing.place(ctx.command.actor_id, ctx.command.episode_id)
        id_ = f"place.{ctx.command.episode_id}.{ctx.delivery.seq}"
        await self.context.ports.timers.send(place, id=id_)
        await ctx.delivery.ack()
        return True


def _is_suspect(ctx: CommandContext) -> bool:
    opened, expectations = ctx.episode.opened, ctx.parts.context.actor.expectations
    if opened is None or opened.expectation_id not in expectations:
        return False
    declared = expectations[opened.expectation_id].attempts_max
    attempts_max = recovery.attempts_of(opened, declared=declared)
    return recovery.is_suspect(ctx.episode, attempts_max=attempts_max)


def _is_called_over(command: Command, episode: Episode) -> bool:
    """Return whether a command calls for the attempt that is the newest, since no node has it.

    A node may have made a claim and died before its start was durable. That claim lapses later,
    maybe once another node has begun the episode: then the call is not about the newest attempt.
    """
    if not isinstance(command, Recover):
        return False
    if command.holder not in {"", episode.node}:  # guard: lapse-of-other-node-waits
        return False
    lapsed = command.lapse_revision
    return not lapsed or lapsed > episode.claim_revision  # guard: older-lapse-waits


def _is_call_for_answer(ctx: CommandContext) -> bool:
    """Return whether a command calls for the answer that the episode can continue with."""
    command, step_no = ctx.command, step_answered(ctx.records[-1])
    return isinstance(command, Start) and command.answered_step == step_no


def _has_gone_on(ctx: CommandContext) -> bool:
    """Return whether a node has since claimed or ended it: the command is obsolete."""
    command, newest = ctx.command, ctx.records[-1]
    step_no = command.answered_step if isinstance(command, Start) else 0
    return bool(step_no) and step_no != step_answered(newest) and _was_answered(ctx, step_no)


def _was_answered(ctx: CommandContext, step_no: int) -> bool:
    events = (event for record in ctx.records for event in record.commit.events)
    answers = (each for each in events if isinstance(each, EpisodeResolved))
    return any(each.step_no == step_no for each in answers)


def _is_first_try(ctx: CommandContext) -> bool:
    """Return whether no node can have begun the episode: nothing can have crashed yet."""
    is_first = isinstance(ctx.command, Start) and ctx.delivery.deliveries == 1
    return is_first and _is_untouched(ctx.episode)


def _is_untouched(episode: Episode) -> bool:
    return episode.status is Status.QUEUED and episode.attempts == 0


def services_for(parts: ActorParts) -> list[Service]:
    """Return the services of an actor's queues."""
    context = parts.context
    actor_id, commands = context.actor.id, context.ports.commands
    runs, clock = context.permits.runs, context.clock
    runner, answers = RunConsumer(parts), AnswerConsumer(parts)
    calls = Queue(
        open=lambda: commands.open(actor_id), labels={"actor": actor_id, "queue": "commands"}
    )
    said = Queue(
        open=lambda: commands.open_attending(actor_id), labels={"actor": actor_id, "queue": "said"}
    )
    return [
        consumer_service(calls, runner.handle, room=context.slots, permit=runs, clock=clock),
        consumer_service(said, answers.handle, room=answers.room, permit=runs, clock=clock),
    ]
