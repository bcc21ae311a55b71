"""Handles the due timers of one actor: ticks, debounced events, findings, waits, fires by hand.

While the actor is paused, timers of open work are handled, and all others are handed back, soon at
first, since other nodes may wake the actor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Final

import structlog
from msgspec.structs import replace

from engine.app import findings
from engine.app.actor import Actor
from engine.app.workflow_plan import Starter
from engine.children import rules as children
from engine.children.rules import NOT_OPENED, PARENT_ENDED
from engine.episodes import fire
from engine.episodes import open as placing
from engine.episodes import open as wake
from engine.episodes.dry_run import merged
from engine.episodes.episode import fold
from engine.episodes.fire import (
    FireRequest,
    ParentCall,
    budget_for,
    fire_dedupe_key,
    fired_episode_id,
    fired_trigger,
    manual_trigger,
    parse_fire,
)
from engine.episodes.open import end_unopened
from engine.episodes.overlap import hold as overlap
from engine.episodes.overlap.store import Holds
from engine.errors import BadRequest
from engine.findings.expire import PURPOSES, FindingExpiry
from engine.runtime.catalog import CannotRun
from engine.runtime.consumer import Queue, RetryPolicy, Service, consumer_service
from engine.runtime.permits import Permit
from engine.triggers import debounce, schedule
from engine.triggers.admit import HAND_BACK_S, STRANGE_DELIVERIES_MAX, Admission, leave
from engine.triggers.debounce import calming_in
from engine.triggers.debounce_store import fired_of
from engine.triggers.evaluate import OpeningBuilder, TriggerEvaluator
from engine.triggers.rules import Part
from engine.triggers.schedule import Ticker
from engine.workflows import start as starts
from streams.errors import Unavailable, UnreadableEvent
from streams.json import raw
from streams.model.children import WithParent
from streams.model.commands import Advance, Attend, Start
from streams.model.events import EpisodeOpened
from streams.model.triggers import Mode
from streams.ports.delivery import ACK_WAIT_S, Delivery, Unreadable
from streams.ports.timers import Due

GOES_ON: Final = frozenset(
    {wake.ATTEND, starts.CONDUCT, placing.PLACE, placing.LEFT, overlap.OVERLAP}
)
"""Purposes of the timers of open episodes, which are handled also while the actor is paused."""

RESTING_S: Final = 5.0
"""Longest redelivery delay of a due message while the actor may not be woken."""

STRANGE_MAX: Final = 10_000
"""Due messages of unknown timers whose returns are counted at a time: as many as the server gives
out unacknowledged. If there are more, counting begins anew."""


GIVE_WAY_S: Final = 0.05
"""First delay of a message for a node that may wake the actor, in seconds; it doubles each time, up
to `RESTING_S`: if there is such a node, it soon has it, and if there is none, nothing is busy."""

log = structlog.get_logger("vigil.triggers")


@dataclass
class TimerRouter:
    """Finds out what the due timers of one actor are for, on one node."""

    evaluator: TriggerEvaluator
    ticker: Ticker = field(init=False)
    expiry: FindingExpiry = field(init=False)
    _returns: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.ticker, self.expiry = (
            Ticker(self.evaluator.context),
            FindingExpiry(self.evaluator.context),
        )

    async def parts(self, due: Due, delivery: Delivery[object]) -> Sequence[Part] | None:
        """Return what is to be done for `due`; None: only another version of the actor may know."""
        is_repeat = delivery.deliveries > 1
        match due.purpose:
            case schedule.PURPOSE:
                return await self.ticker.due(due, is_repeat=is_repeat)
            case debounce.PURPOSE:
                return self._calmed(due, is_repeat=is_repeat)
            case fire.PURPOSE:
                return await self._fired(due, delivery)
            case placing.PLACE:
                return await self._start(due)
            case wake.ATTEND:
                return await self._attend(due)
            case starts.CONDUCT:
                return await self._conduct(due)
            case overlap.OVERLAP:
                return await self._look(due)
            case findings.EXPIRE | findings.ESCALATE:
                aged = self.expiry.due(due)
                return None if aged is None else [aged]
            case _:
                return None

    def returns_of(self, due: Due) -> int:
        """Return how often an unknown due message has come here, this time included."""
        # Its deliveries do not show that: it may have been handed back for other reasons.
        if len(self._returns) > STRANGE_MAX:
            self._returns.clear()
        self._returns[due.id] += 1
        return self._returns[due.id]

    async def give_up(self, due: Due, delivery: Delivery[object]) -> Sequence[Part]:
        """Return the dead letter, if any, for a timer that no node has known for long.

        A child that no node can open is ended instead: its parent waits for that.
        """
        asked = self._request_in(due)
        if asked is not None and asked.parent is not None:  # guard: unknown-child-told
            opened = self._bare(asked, asked.parent)
            why = f"no node has the expectation {asked.expectation!r} of actor {opened.actor_id!r}"
            await self._end_child(opened, NOT_OPENED, why)
            return []
        letter = self.forgotten(due, delivery)
        return [] if letter is None else [letter]

    def _request_in(self, due: Due) -> FireRequest | None:
        try:
            return parse_fire(due.payload) if due.purpose == fire.PURPOSE else None
        except BadRequest:
            return None

    def _bare(self, asked: FireRequest, parent: ParentCall) -> EpisodeOpened:
        """Return the opening of a child whose declaration is not known."""
        context = self.evaluator.context
        stack, actor_id = context.ports.stack.name, context.actor.id
        id_ = fired_episode_id(
            stack=stack,
            actor=actor_id,
            expectation=asked.expectation,
            key=asked.key,
            mode=asked.mode,
        )
        return EpisodeOpened(
            episode_id=id_,
            actor_id=actor_id,
            expectation_id=asked.expectation,
            trigger=fired_trigger(asked, subject_key=""),
            dedupe_key=fire_dedupe_key(asked.key, asked.mode),
            budget=parent.budget,
            mode=asked.mode,
        )

    def forgotten(self, due: Due, delivery: Delivery[object]) -> Unreadable | None:
        """Return the dead letter for a timer that no node has known for long; None: none."""
        # A schedule that nobody declares just ends, and so do a closed lane and the escalation of a
        # finding. What a person or an event wanted is kept.
        # guard: unknown-tick-ends
        if due.purpose in {schedule.PURPOSE, placing.LEFT, overlap.OVERLAP, *PURPOSES}:
            return None
        detail = f"no node knows what the timer {due.purpose} {due.key!r} is for"
        return self._unreadable(due, delivery, reason="not_watched", detail=detail)

    async def _start(self, due: Due) -> Sequence[Part] | None:
        """Send `Start` for an episode that asks for its turn: there are no turns any more."""
        context = self.evaluator.context
        if placing.IF_THERE in due.payload:
            try:
                newest = await context.ports.log.last(context.ports.stack.episode(due.key))
            except UnreadableEvent:  # It is there, and of a newer version.
                return None
            if placing.untouched(newest) is None:  # guard: no-turns-nothing-asked
                return []
        start = Start(actor_id=context.actor.id, episode_id=due.key)
        await context.ports.commands.send(start, id=f"start.{due.id}")
        return []

    async def _attend(self, due: Due) -> Sequence[Part]:
        context = self.evaluator.context
        attend = Attend(actor_id=context.actor.id, episode_id=due.key)
        await context.ports.commands.send(attend, id=f"attend.{due.id}")
        return []

    async def _conduct(self, due: Due) -> Sequence[Part] | None:
        context = self.evaluator.context
        if not isinstance(context.actor, Starter):
            return None
        advance = Advance(workflow=context.actor.workflow, instance_id=due.key)
        await context.ports.commands.send(advance, id=f"advance.{due.id}")
        return []

    async def _look(self, due: Due) -> Sequence[Part]:
        """Call the episode that starts once another one of its subject has ended."""
        context = self.evaluator.context
        expectation, subject = str(due.payload["expectation"]), str(due.payload["subject"])
        await Holds(context.ports, context.clock).look(context.actor.id, expectation, subject)
        return []

    def _calmed(self, due: Due, *, is_repeat: bool) -> Sequence[Part] | None:
        debounced = calming_in(due.payload)
        if debounced is None:
            return None
        expectation = self.evaluator.context.actor.expectations.get(debounced.expectation)
        if expectation is None:
            return None
        return [fired_of(debounced, expectation, is_repeat=is_repeat)]

    async def _fired(self, due: Due, delivery: Delivery[object]) -> Sequence[Part] | None:
        try:
            asked = parse_fire(due.payload)
        except BadRequest as error:
            return [self._unreadable(due, delivery, reason="unreadable", detail=str(error))]
        if asked.expectation not in self.evaluator.context.actor.expectations:
            return None
        if isinstance(starter := self.evaluator.context.actor, Starter):
            return [self._start_of(asked, starter.workflow)]
        try:
            actor = await self._actor_for(asked)
        except CannotRun as error:
            log.warning("a fire waits for a node that can", why=error.hindrance.detail)
            return None  # guard: unmakeable-fire-for-others
        if asked.expectation not in actor.expectations:  # guard: fired-revision-has-expectation
            detail = f"revision {asked.revision} has no expectation {asked.expectation!r}"
            return [self._unreadable(due, delivery, reason="unreadable", detail=detail)]
        opened = await self._opening(asked, actor)
        if asked.parent is not None and await self._has_ended(asked.parent):
            why = f"episode {asked.parent.episode_id} had ended before it was opened"
            await self._end_child(opened, PARENT_ENDED, why)
            return []
        fired = await self.evaluator.fire(opened)
        return [] if fired is None else [fired]

    async def _has_ended(self, parent: ParentCall) -> bool:
        """Return whether the parent of a child has ended, so that nobody waits for the child."""
        if parent.with_parent is WithParent.LEAVE:
            return False
        ports = self.evaluator.context.ports
        try:
            newest = await ports.log.last(ports.stack.episode(parent.episode_id))
        except UnreadableEvent:  # Of a newer version, but there.
            return False
        # guard: ended-parents-child-not-run
        return newest is not None and fold((newest,)).finished is not None

    async def _end_child(self, opened: EpisodeOpened, error_class: str, why: str) -> None:
        """End a child that is not run, unless it is open: its parent hears of that end."""
        context = self.evaluator.context
        life = children.unopened(opened, error_class, why)
        await end_unopened(context.ports, life, at=context.clock.now())

    def _start_of(self, asked: FireRequest, workflow: str) -> starts.InstanceStart:
        """Return the instance that a person asked for."""
        context = self.evaluator.context
        (expectation,) = context.actor.expectations.values()
        trigger = manual_trigger(asked, subject_key=expectation.subject_key)
        key = fire_dedupe_key(asked.key, asked.mode)
        return replace(
            starts.start_of(workflow, trigger, key, stack=context.ports.stack.name),
            mode=asked.mode,  # guard: instance-starts-as-asked
            overrides=asked.overrides,
            step_overrides=asked.step_overrides,
        )

    async def _actor_for(self, asked: FireRequest) -> Actor:
        """Return the actor at the revision asked for; `CannotRun`: this node cannot make it."""
        context = self.evaluator.context
        if asked.revision in (0, context.actor.revision):
            return context.actor
        return await context.revisions.actor(context.actor.id, asked.revision)

    async def _opening(self, asked: FireRequest, actor: Actor) -> EpisodeOpened:
        """Return the opening that a person asked for: the request overrides the declaration."""
        expectation = actor.expectations[asked.expectation]
        trigger = fired_trigger(asked, subject_key=expectation.subject_key)
        # guard: fired-revision-options
        builder = OpeningBuilder(with_fields(self.evaluator.context, actor=actor))
        key = fire_dedupe_key(asked.key, asked.mode)
        opened = await builder.opened(expectation, trigger, key)
        is_dry = asked.mode is Mode.DRY_RUN
        if asked.parent is not None:
            budget = children.capped(opened.budget, asked.parent.budget)
            is_less = budget != opened.budget
            adaptive = None if is_less else opened.adaptive_budget
            opened = replace(opened, budget=budget, adaptive_budget=adaptive)
        return replace(
            opened,
            mode=asked.mode,  # guard: timer-opens-as-asked
            overrides=merged(asked.overrides, expectation.dry_run) if is_dry else None,
            priority=asked.priority or opened.priority,
            metadata=asked.metadata,
            budget=budget_for(asked, opened.budget),
            # What a person has allowed is no measure for the others.
            # guard: person-allowed-no-measure
            adaptive_budget=None if asked.budget else opened.adaptive_budget,
            log_strategy=asked.log_strategy or opened.log_strategy,  # guard: fired-log-strategy
            attempts_max=asked.attempts_max,
            # guard: overlap-dry-run-holds-nothing
            holds_subject=opened.holds_subject and not is_dry,
        )

    def _unreadable(
        self, due: Due, delivery: Delivery[object], *, reason: str, detail: str
    ) -> Unreadable:
        stack, actor = self.evaluator.context.ports.stack, self.evaluator.context.actor.id
        subject = stack.due(actor)
        return Unreadable(
            reason=reason,
            detail=detail,
            stream=stack.stream_of(subject),
            seq=delivery.seq,
            subject=subject,
            headers={},
            data=bytes(raw(due)),
        )


@dataclass
class TimerConsumer:
    """Takes what comes due for one actor on one node."""

    admission: Admission
    router: TimerRouter
    takes_causes: bool
    """Whether the actor may be woken."""

    def service(self, permit: Permit) -> Service:
        """Return the service that handles due timers; it opens once each schedule has one."""
        context = self.admission.context
        queue = Queue(
            open=lambda: context.ports.timers.open(context.actor.id),
            labels={"actor": context.actor.id, "queue": "due"},
            opened=self._tick,
            pauses=False,
        )
        room, clock = self.admission.room, context.clock
        return consumer_service(queue, self._admit, room=room, permit=permit, clock=clock)

    async def _tick(self) -> None:
        if self.takes_causes:
            await self.router.ticker.ensure()

    async def _admit(self, delivery: Delivery[Due | Unreadable], asked_s: float) -> None:
        due = delivery.content
        if isinstance(due, Unreadable):
            return await self.admission.let_in(delivery, [due], since_s=asked_s)
        if not self.takes_causes and due.purpose not in GOES_ON:  # guard: paused-not-woken
            return await _rest(delivery)
        # guard: late-tick-moves-no-timer
        if self.admission.context.clock.monotonic_s() - asked_s >= ACK_WAIT_S:
            # Others may have it by now, and have done all of it.
            return await delivery.nak(delay_s=HAND_BACK_S)
        try:
            parts = await self.router.parts(due, delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            return await delivery.nak(delay_s=HAND_BACK_S)
        if parts is not None:
            return await self.admission.let_in(delivery, parts, since_s=asked_s)
        if self.router.returns_of(due) < STRANGE_DELIVERIES_MAX:  # guard: unknown-due-dead-letter
            return await leave(delivery)
        parts = await self.router.give_up(due, delivery)
        return await self.admission.let_in(delivery, parts, since_s=asked_s)


async def _rest(delivery: Delivery[Due | Unreadable]) -> None:
    # guard: unable-to-wake-hides-nothing
    await RetryPolicy(GIVE_WAY_S, RESTING_S).hand_back(delivery)
