"""Opens the episodes of a cause, and acknowledges its message once all of them are durable.

A node with a free slot runs a new episode at once: its first commit opens and starts it, and only
then is the message acknowledged (docs/adr/0017-opened-here-runs-here.md). Otherwise the episode is
opened and queued for any node. Its id comes from its cause, so all of it is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import structlog
from structlog.contextvars import bound_contextvars

from engine import telemetry
from engine.app import dedupe
from engine.dead_letters.write import unopened
from engine.episodes.attempt import AttemptCause, AttemptState
from engine.episodes.episode import UNOPENED
from engine.episodes.open import open_episode
from engine.execution.parts import ActorParts
from engine.execution.run import new_attempt, run_episode
from engine.runtime.consumer import RetryPolicy
from engine.runtime.slots import Slots
from engine.triggers.evaluate import TriggerEvaluator
from engine.triggers.rules import Opening, Part, id_of
from engine.workflows.begin import InstanceStarter, StartOutcome
from engine.workflows.start import InstanceStart
from streams.clock import Clock
from streams.errors import TooLarge, Unavailable, Unwritable
from streams.model.commands import Start
from streams.model.events import EpisodeOpened
from streams.model.triggers import EventTrigger
from streams.ports.delivery import ACK_WAIT_S, Delivery, Unreadable
from streams.tracing import context_of, traceparent

IN_FLIGHT_MAX: Final = 256
"""Unacknowledged events and due timers of one actor on one node. Each queue asks for as many as
there is room for, so what several deliver at the same moment may be more, once.
"""

HAND_BACK_S: Final = 1.0
"""Redelivery delay of a message that could not be evaluated while the log was unavailable."""


STRANGE_S: Final = 0.25
"""First wait before an event comes again that no expectation here watches; doubles each time."""

STRANGE_MAX_S: Final = 5.0
"""Longest such wait."""

STRANGE_DELIVERIES_MAX: Final = 123
"""Deliveries of such an event before it is refused: about 10 minutes, which is longer than a deploy
takes to bring a node that watches it."""

log = structlog.get_logger("vigil.triggers")


class Acknowledgement:
    """The pending acknowledgement of an event, which has a slot of the gate until then.

    It is entered once for each part. When all have left without an answer, the slot is free, and
    the event comes again.
    """

    def __init__(
        self, delivery: Delivery[Any], *, parts: int, room: Slots, clock: Clock, since_s: float
    ) -> None:
        """Wait for `parts` episodes; the slot in `room` has been taken.

        `since_s` is when the event was requested, on the monotonic clock: it cannot have come
        before, and a node that was frozen in between must not take it for new.
        """
        self.delivery = delivery
        self._clock, self._since_s = clock, since_s  # guard: late-known-before-look
        self._parts_left = self._parts_at_work = parts
        self._room, self._is_answered = room, False

    @property
    def is_overdue(self) -> bool:
        """Whether the event may have been redelivered to others by now."""
        return self._clock.monotonic_s() - self._since_s >= ACK_WAIT_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts_at_work -= 1
        if not self._parts_at_work:
            self._answered()

    async def part_done(self) -> None:
        """Count an episode that is durable; the last one acknowledges the event."""
        self._parts_left -= 1
        if not self._parts_left and self._answered():  # guard: acknowledged-when-all-durable
            await self.delivery.ack()

    async def hand_back(self, *, delay_s: float) -> None:
        """Have the event redelivered after `delay_s`, whatever becomes of the other episodes."""
        if self._answered():
            await self.delivery.nak(delay_s=delay_s)

    def _answered(self) -> bool:
        is_first, self._is_answered = not self._is_answered, True
        if is_first:
            self._room.give_back()
        return is_first


@dataclass(frozen=True)
class FiredPart:
    """The part of an event that opened an episode which runs here."""

    opened: EpisodeOpened
    evaluator: TriggerEvaluator
    ack_of_event: Acknowledgement

    async def ack(self) -> None:
        """Count the fire, and acknowledge the part."""
        self.evaluator.note_fire(self.opened)
        await self.ack_of_event.part_done()


@dataclass
class Admission:
    """Opens what wakes one actor on one node."""

    parts: ActorParts
    evaluator: TriggerEvaluator
    room: Slots = field(default_factory=lambda: Slots(IN_FLIGHT_MAX))

    def __post_init__(self) -> None:
        self.context = self.parts.context

    async def let_in(
        self, delivery: Delivery[Any], parts: Sequence[Part], *, since_s: float
    ) -> None:
        """Acknowledge a message at once if it has no parts; else begin to work on them."""
        if not parts:
            return await delivery.ack()
        self.room.take_late()  # guard: late-room-is-counted
        ack = Acknowledgement(
            delivery, parts=len(parts), room=self.room, clock=self.context.clock, since_s=since_s
        )
        for part in parts:
            self.context.tasks.start(self._work_on(part, ack))
        return None

    async def _work_on(self, part: Part, ack: Acknowledgement) -> None:
        with ack, telemetry.span("gate", context_of(ack.delivery.trace)):
            try:
                settled = await self.evaluator.evaluate(part, is_late=lambda: ack.is_overdue)
                if isinstance(settled, Unreadable):
                    await self.parts.dead_letters.write_message(
                        settled, actor_id=self.context.actor.id
                    )
                elif settled is not None and await self._open(settled, ack):
                    return
            except Unavailable as error:
                log.warning("handed back", actor=self.context.actor.id, error=str(error))
                await ack.hand_back(delay_s=HAND_BACK_S)
            else:
                await ack.part_done()

    async def _open(self, opened: Opening, ack: Acknowledgement) -> bool:
        """Open what a cause opens; return whether it runs here, so that its run acknowledges."""
        if isinstance(opened, InstanceStart):
            await self._start(opened, ack)
        elif await self._is_open(opened, ack):  # guard: duplicate-runs-no-code
            self.evaluator.note_duplicate(opened)
        elif await self._run_here(opened, ack):
            return True
        else:
            await self._queue(opened, ack)
        return False

    async def _start(self, start: InstanceStart, ack: Acknowledgement) -> None:
        """Start an instance, or write a dead letter if the journal can store nothing of it."""
        _check_in_time(start, ack)
        context = self.context
        starter = InstanceStarter(context.catalog, context.ports, context.clock)
        try:
            with bound_contextvars(instance_id=start.instance_id, workflow=start.workflow):
                outcome = await starter.start(start)
        except (TooLarge, Unwritable) as error:
            return await self._reject(start, error, ack)
        match outcome:
            case StartOutcome.STARTED | StartOutcome.REFUSED:
                self.evaluator.note_fire(start)
            case StartOutcome.REPEATED:
                self.evaluator.note_duplicate(start)
            case StartOutcome.SKIPPED:
                self.evaluator.note_overlap(start)
        return None

    async def _reject(
        self, opened: Opening, error: TooLarge | Unwritable, ack: Acknowledgement
    ) -> None:
        content, seq, actor = ack.delivery.content, ack.delivery.seq, self.context.actor.id
        stack, trigger = self.context.ports.stack, opened.trigger
        letter = unopened(trigger, content, error, stack=stack, seq=seq, actor_id=actor)
        await self.parts.dead_letters.write_message(letter, actor_id=actor)

    async def _is_open(self, opened: EpisodeOpened, ack: Acknowledgement) -> bool:
        """Return whether another cause has opened the episode."""
        # It is looked up first, so that no user code runs in vain for a duplicate. A redelivered
        # message may have opened its episode itself, on a node that died before all was done.
        if is_own(opened) or ack.delivery.deliveries > 1:  # guard: repeated-event-completes
            return False
        return await self.evaluator.builder.is_open(opened)

    async def _run_here(self, opened: EpisodeOpened, ack: Acknowledgement) -> bool:
        """Run an episode that its first commit opens; return whether it was begun."""
        # A redelivered message may have crashed a node: its episode is opened first and alone, so
        # that crashes are counted.
        is_first_try = ack.delivery.deliveries == 1  # guard: repeated-event-opens-alone
        if not is_first_try or ack.is_overdue:
            return False
        return await run_here(self.parts, opened, FiredPart(opened, self.evaluator, ack))

    async def _queue(self, opened: EpisodeOpened, ack: Acknowledgement) -> None:
        """Open an episode for any node, or write a dead letter if the journal cannot store it."""
        _check_in_time(opened, ack)
        try:
            now, trace = self.context.clock.now(), traceparent()
            is_new = await open_episode(self.context.ports, opened, at=now, trace=trace)
        # Numbers and text may need more room than they came in.
        except (TooLarge, Unwritable) as error:
            await self._reject(opened, error, ack)
        else:
            if not is_new:  # guard: breaker-end-noted-by-cause
                # All of it may be one commit, whose node died before the breaker was informed.
                start = Start(actor_id=opened.actor_id, episode_id=opened.episode_id)
                id_ = f"start.{opened.episode_id}"
                await self.context.ports.commands.send(start, id=id_, trace=trace)
            (self.evaluator.note_fire if is_new else self.evaluator.note_duplicate)(opened)


async def run_here(
    parts: ActorParts,
    opened: EpisodeOpened,
    cause: AttemptCause,
    *,
    on_only_commit: Callable[[], object] | None = None,
) -> bool:
    """Run an episode that its first commit opens, if there is a slot; return whether it was begun.

    If not, nothing of it is written. `on_only_commit`: see `Attempt`.
    """
    context = parts.context
    if opened.revision != context.actor.revision:  # guard: fired-revision-runs
        return False  # The command to start it finds the actor as it was then.
    if not context.permits.runs.is_given:  # guard: trigger-only-runs-nothing
        return False
    if not context.slots.try_take():  # guard: local-episodes-keep-limit
        return False
    attempt = new_attempt(context, opened, UNOPENED, cause, on_only_commit=on_only_commit)
    try:
        with (
            bound_contextvars(episode_id=opened.episode_id, actor=opened.actor_id),
            telemetry.span("episode"),
        ):
            state = await run_episode(parts, attempt, UNOPENED)
            return state is not AttemptState.NOT_BEGUN
    finally:
        context.slots.give_back()


def _check_in_time(opened: Opening, ack: Acknowledgement) -> None:
    if ack.is_overdue:  # guard: overdue-opens-nothing
        raise Unavailable(id_of(opened), detail="not opened in time; it may be with others")


def is_own(opened: EpisodeOpened) -> bool:
    """Return whether no other cause can open this episode."""
    trigger = opened.trigger
    return isinstance(trigger, EventTrigger) and opened.dedupe_key == dedupe.event_key(
        trigger.event_id
    )


async def leave(delivery: Delivery[object]) -> None:
    """Hand a message back, to come again on any node after a growing delay."""
    await RetryPolicy(STRANGE_S, STRANGE_MAX_S).hand_back(delivery)
