"""Handles the commands to episodes: reads the episode, then follows the command or hands it back.

A command that no node has followed for long becomes a dead letter. Decisions and signals have a
queue of their own, so that they need not wait for a slot; an episode that can continue is then
called by a command in the queue of `RunConsumer`, which pulls as many commands as there are slots.
All nodes of an actor share both queues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import telemetry
from engine.episodes import open as placing
from engine.episodes import recovery
from engine.episodes.episode import ENDED, Episode, Status, fold
from engine.episodes.overlap.store import Holds
from engine.episodes.recovery import NO_SUCH_EPISODE, why_cannot_run
from engine.execution.cancel import CancelHandler, needs_expectation
from engine.execution.run import EpisodeRunner
from engine.execution.suspects import SuspectRunner
from engine.outputs.handle import OutputHandler, is_about_outputs
from engine.outputs.pool import OutputContext
from engine.runtime.catalog import CannotRun, Hindrance
from engine.runtime.consumer import Queue, RetryPolicy, Service, consumer_service
from engine.runtime.slots import Slots
from engine.waits.handle import WaitHandler, is_newest
from engine.waits.wait import is_answered, step_answered
from streams.errors import Unavailable, UnreadableEvent
from streams.model.commands import Attending, Cancel, Carry, Command, Start
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

    context: OutputContext
    """Has the actor's version by which the episode was opened."""
    delivery: Incoming
    command: Command
    episode: Episode
    """The fold of `records`."""
    records: Sequence[Recorded]


Follow: TypeAlias = Callable[[CommandContext], Awaitable[bool]]
"""Carries a command out, and returns whether it is acknowledged."""


@dataclass
class CommandLoader:
    """Loads the episodes of one actor's commands, on one node."""

    context: OutputContext
    is_of_said: bool
    """Whether these are decisions and signals; otherwise they call nodes to run episodes."""
    _noted: set[str] = field(default_factory=set)

    async def answer(self, delivery: Incoming, follow: Follow) -> None:
        """Answer a delivery: follow it, write a dead letter, or hand it back."""
        content = delivery.content
        try:
            if isinstance(content, Unreadable):
                await self.context.dead_letters.write_message(
                    content, actor_id=self.context.actor.id
                )
                return await delivery.term(content.reason)
            with (
                bound_contextvars(episode_id=content.episode_id, actor=content.actor_id),
                telemetry.span("episode", context_of(delivery.trace)),
            ):
                await self._answer(delivery, content, follow)
        except Unavailable as error:
            log.warning("command handed back: the log is away", error=str(error))
            await hand_back(delivery)

    async def _answer(self, delivery: Incoming, command: Command, follow: Follow) -> None:
        if isinstance(command, Attending) is not self.is_of_said:  # guard: wrong-queue-followed
            return await self._write_dead_letter(delivery, command, WRONG_QUEUE)
        try:
            ctx = await self._ctx(delivery, command)
        except CannotRun as refusal:
            return await self._refuse(delivery, command, refusal.hindrance)
        if not await follow(ctx):
            await hand_back(delivery)
        return None

    async def _write_dead_letter(
        self, delivery: Incoming, command: Command, why: Hindrance
    ) -> None:
        await self.context.dead_letters.write_command(
            command, seq=delivery.seq, reason=why.reason, detail=why.detail
        )
        await delivery.term(why.reason)

    async def _ctx(self, delivery: Incoming, command: Command) -> CommandContext:
        subject = self.context.ports.stack.episode(command.episode_id)
        try:
            records = await self.context.ports.log.read(subject)
        except UnreadableEvent as error:
            why = f"this version cannot read it: {error}"
            raise CannotRun(Hindrance("unreadable_journal", why)) from error
        episode = fold(records)
        # A node can end an episode that it could not run.
        is_mere_end = isinstance(command, Cancel) and not needs_expectation(episode)
        context = self.context if is_mere_end else await self._context_for(episode)
        return CommandContext(
            context=context, delivery=delivery, command=command, episode=episode, records=records
        )

    async def _context_for(self, episode: Episode) -> OutputContext:
        opened, is_over = episode.opened, episode.status in ENDED
        context = (
            self.context if opened is None or is_over else await self.context.as_opened(opened)
        )
        hindrance = why_cannot_run(context.actor, episode)
        if hindrance is not None:
            raise CannotRun(hindrance)
        return context

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


async def hand_back(delivery: Incoming, *, most_s: float = BUSY_MAX_S) -> None:
    """Hand a command back, for longer each time."""
    await RetryPolicy(BUSY_S, most_s).hand_back(delivery)


@dataclass
class AnswerConsumer:
    """Handles the decisions and signals for one actor's episodes, on one node."""

    context: OutputContext
    room: Slots = field(default_factory=lambda: Slots(ROOM_MAX))
    _loader: CommandLoader = field(init=False)

    def __post_init__(self) -> None:
        self._loader = CommandLoader(self.context, is_of_said=True)

    async def handle(self, delivery: Incoming, _asked_s: float) -> None:
        """Handle a delivery in a task of its own."""
        self.room.take_late()  # guard: rulings-at-a-time-max
        self.context.tasks.start(self._hear(delivery))

    async def _hear(self, delivery: Incoming) -> None:
        try:
            await self._loader.answer(delivery, self._follow)
        finally:
            self.room.give_back()

    async def _follow(self, ctx: CommandContext) -> bool:
        if isinstance(ctx.command, Cancel):
            cancellation = CancelHandler(ctx.context, ctx.command, ctx.delivery)
            return await cancellation.carry_out(ctx.episode, ctx.records)
        if not await is_newest(ctx.context.ports.log, ctx.records):  # guard: effectless-by-leader
            return False
        if is_about_outputs(ctx.command, ctx.episode):
            outputs = OutputHandler(ctx.context)
            return await outputs.follow(ctx.delivery, ctx.command, ctx.episode, ctx.records)
        handler = WaitHandler(ctx.context)
        return await handler.attend(ctx.delivery, ctx.command, ctx.episode, ctx.records)


@dataclass
class RunConsumer:
    """Handles the commands that call a node to one actor's episodes, on one node."""

    context: OutputContext
    _loader: CommandLoader = field(init=False)

    def __post_init__(self) -> None:
        self._loader = CommandLoader(self.context, is_of_said=False)

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
            await self._loader.answer(delivery, self._follow)
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
        if await self._is_turned_away(ctx.episode):  # guard: troubled-node-does-not-begin
            return False
        isolation = self.context.isolation
        if isolation is not None and _is_suspect(ctx):  # guard: suspect-runs-alone
            return await SuspectRunner(ctx.context, isolation, ctx.delivery).run(ctx.episode)
        runner = EpisodeRunner(ctx.context, ctx.delivery.ack)
        careful = not _is_first_try(ctx)  # guard: repeated-command-may-have-crashed
        return await runner.take_over(ctx.episode, ctx.records, careful=careful)

    async def _carry(self, ctx: CommandContext) -> bool:
        runner = EpisodeRunner(ctx.context, ctx.delivery.ack, called_at=ctx.delivery.at)
        if ctx.episode.status in ENDED:
            return await runner.deliver_rest(ctx.episode, ctx.records)
        return await runner.take_over(ctx.episode, ctx.records, careful=True)

    async def _is_turned_away(self, episode: Episode) -> bool:
        opened = episode.opened
        if opened is None or not _is_untouched(episode):
            return False
        return await self.context.breakers.turns_away(opened)

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
    opened, expectations = ctx.episode.opened, ctx.context.actor.expectations
    expectation = expectations.get(opened.expectation_id) if opened is not None else None
    if expectation is None:
        return False
    return recovery.is_suspect(ctx.episode, attempts_max=expectation.attempts_max)


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


def services_for(context: OutputContext) -> list[Service]:
    """Return the services of an actor's queues."""
    actor_id, commands = context.actor.id, context.ports.commands
    runs, clock = context.permits.runs, context.clock
    runner, answers = RunConsumer(context), AnswerConsumer(context)
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
