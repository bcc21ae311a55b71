"""Handles commands to blocked episodes, with their timers and waits for signals.

No node has a blocked episode: of two answers at once, the version refuses the second. Once the
answer is durable, the reactor calls a node.

Timers are not commits, and waits for signals are on a journal of their own. A slow node may write
them for a wait that is over: so it never replaces an earlier timer of another node, and checks
afterwards whether the episode has moved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar

import structlog

from engine.children.collect import ChildrenCollector
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import events as episode_events
from engine.episodes import open as opening
from engine.episodes.episode import Episode, Status, fold
from engine.episodes.open import ATTEND, call_by
from engine.errors import Refused
from engine.runtime.context import ActorContext
from engine.runtime.publish import EventPublisher
from engine.runtime.store import Loaded, Store, read_current
from engine.waits import answer as answering
from engine.waits import equal_requests
from engine.waits import wait as waits
from engine.waits.answer import WaitAnswer
from engine.waits.deciders import with_groups
from engine.waits.parked import TOO_LATE
from engine.waits.signals import References, unserved
from engine.waits.unpark import forget_parked, list_parked
from engine.waits.wait import Blocked, asked_in, block_in
from streams.model.commands import Attend, Command, Decide, Resolve, ShareDecision
from streams.model.events import (
    EpisodeApprovalGiven,
    EpisodeEvent,
    EpisodeOpened,
    EpisodeResolved,
    SignalWaited,
)
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.log import EventLog, Recorded
from streams.tracing import traceparent
from streams.wire.messages import inbox_of

T = TypeVar("T")

Journal: TypeAlias = Loaded[Episode]
"""An episode and its commits, as they were read."""

Incoming: TypeAlias = Delivery[Command | Unreadable]

log = structlog.get_logger("vigil.waits")


@dataclass(frozen=True)
class WaitRegistry:
    """Timers and waits for signals of one actor's blocked episodes, on one node."""

    context: ActorContext

    async def register(self, opened: EpisodeOpened) -> None:
        """Do all that follows a block, if the episode still waits."""
        block = block_in(await self.context.ports.log.last(self._subject(opened)))
        if block is None:
            return
        await self.watch(opened, after=block.at)
        await self.leave_lane(opened, block)

    async def watch(self, opened: EpisodeOpened, *, after: datetime) -> None:
        """Arm the timer for what is due next after `after`, and register the wait for signals."""
        # An episode that moves meanwhile loses nothing: a timer is never put off, and a wait that
        # is over is not written down.
        block = block_in(await self.context.ports.log.last(self._subject(opened)))
        if block is not None:
            await self._arm(opened, block, after=after)
            await self.listen(opened, block)
        if block is not None and block.is_parked:
            await list_parked(self.context.ports, self.context.clock, opened, block)

    async def remind(
        self, opened: EpisodeOpened, block: Blocked, *, at: datetime, seq: int
    ) -> None:
        """Remind people of what the episode waits for, if that is due at `at`."""
        number = block.pending.reminder_no(at=at)
        if number and episode_events.is_public(opened):
            reminder = waits.reminder(opened, block, number=number, seq=seq)
            await EventPublisher(self.context.ports.domain_events).publish([reminder])

    async def leave_lane(self, opened: EpisodeOpened, block: Blocked) -> None:
        """Free the episode's place in the lane, if its actor has one, for as long as it waits."""
        if self.context.is_laned:  # guard: waiting-frees-place
            left = opening.left_for_now(opened.actor_id, opened.episode_id)
            id_ = f"left.{opened.episode_id}.{block.id}"
            await self.context.ports.timers.send(left, id=id_)

    async def forget(self, opened: EpisodeOpened, *, was_parked: bool) -> None:
        """Remove the timer of an episode that ended while it waited."""
        await self.context.ports.timers.cancel(opened.actor_id, ATTEND, opened.episode_id)
        if was_parked:
            await forget_parked(self.context.ports, opened)

    async def _arm(self, opened: EpisodeOpened, block: Blocked, *, after: datetime) -> None:
        wake = block.pending.next_wake(after=after)
        if wake is not None:
            await call_by(self.context.ports, opened, wake)

    async def listen(self, opened: EpisodeOpened, block: Blocked) -> None:
        """Append the waits of the episode, the waits ahead included."""
        node = self.context
        references = References(node.ports, node.clock, node.turns)
        for ref in block.refs:  # guard: branches-waits-on-journal
            waited = SignalWaited(
                ref=ref,
                actor_id=opened.actor_id,
                episode_id=opened.episode_id,
                step_no=block.step_no,
                since=block.at,
                is_ahead=ref != block.reference,
            )
            await references.wait(waited)

    def _subject(self, opened: EpisodeOpened) -> str:
        return self.context.ports.stack.episode(opened.episode_id)


async def is_newest(log: EventLog, records: Sequence[Recorded]) -> bool:
    """Return whether `records` are all that the journal's leader has."""
    # A replica may lack the wait, and a command that then has no effect is not redelivered: so it
    # would be lost.
    newest = await log.last(records[-1].subject)
    return newest is not None and newest.seq == records[-1].seq


@dataclass
class WaitHandler:
    """Handles commands to blocked episodes of one actor, on one node."""

    context: ActorContext
    _registry: WaitRegistry = field(init=False)
    _store: Store[Episode, EpisodeEvent] = field(init=False)

    def __post_init__(self) -> None:
        self._registry = WaitRegistry(self.context)
        self._store = Store(self.context.ports.log, self.context.clock, fold)

    async def attend(
        self,
        delivery: Incoming,
        command: Command,
        episode: Episode,
        records: Sequence[Recorded],
    ) -> bool:
        """Carry out `command` on the whole journal `records`; return whether it is acknowledged."""
        match command:
            case Decide() | Resolve():
                await self._decide(command, records, delivery)
            case ShareDecision(step_no=step_no):
                await self._share(records, step_no)
            case Attend() if episode.status is Status.BLOCKED:
                if await ChildrenCollector(self.context).collect(episode, records):
                    records = await read_current(
                        self.context.ports.log, self.context.clock, records[-1].subject
                    )
                await self._look_after(records, delivery)
            case _:
                pass
        await delivery.ack()
        return True

    async def _decide(
        self, decision: Decide | Resolve, records: Sequence[Recorded], delivery: Incoming
    ) -> None:
        """Record a decision, or the expiry if it came late; one for an older episode is sent on."""

        async def attempt(journal: Journal) -> None:
            answer = answering.answer(journal.records, decision, at=delivery.at)
            if answer is not None:
                await self._append(answer, journal)
                end = answer.resolved
                how = end.resolution.value if end is not None else "approved, as others have to"
                log.info("answered", resolution=how, by=decision.by)

        try:
            if isinstance(decision, Decide) and equal_requests.is_of_people(decision):
                meant = await self._meant(decision, records, at=delivery.at)
                if meant.episode_id != decision.episode_id:
                    return await self._send_on(meant)
                decision = meant
            if isinstance(decision, Decide):
                node, asked = self.context, asked_in(records)
                decision = await with_groups(node.ports, node.clock, decision, asked)
            await self._retry(attempt, records, seed=decision.id)
        except Refused as refused:
            kind = type(decision).__name__.lower()
            log.info("refused", command=kind, by=decision.by, id=decision.id, why=str(refused))
            if isinstance(decision, Resolve):  # guard: refused-signal-is-letter
                await self._keep(decision, str(refused), delivery)
            await self._expire(records, delivery)

    async def _keep(self, signal: Resolve, why: str, delivery: Incoming) -> None:
        """Make a signal whose wait has ended otherwise a dead letter."""
        ports, detail = self.context.ports, f"episode {signal.episode_id}: {why}"
        stream = ports.stack.stream_of(inbox_of(ports.stack, signal))
        letter = unserved(signal, ports.stack, why=detail, stream=stream, seq=delivery.seq)
        letters = DeadLetterWriter(ports, self.context.clock)
        await letters.write_message(letter, actor_id=signal.actor_id)

    async def _meant(
        self, decision: Decide, records: Sequence[Recorded], *, at: datetime
    ) -> Decide:
        """Return a decision as it is for the oldest of the episodes with an equal request."""
        opened, block = fold(records).opened, block_in(records[-1])
        if opened is None or block is None or not block.reference:
            return decision
        node, ref = self.context, block.reference
        references = References(node.ports, node.clock, node.turns)
        state = await references.state(ref)
        if not state.is_registered(opened.episode_id, block.step_no):
            await self._registry.listen(opened, block)
            state = await references.state(ref)
        if not state.is_registered(opened.episode_id, block.step_no):
            return decision  # It waits no more, and says why.
        decision = equal_requests.counted(state, decision)
        own_no = state.numbers[opened.episode_id]
        for older in equal_requests.older(state, opened.episode_id):
            past = await self._journal_of(older.episode_id)
            meant = equal_requests.for_older(decision, older, past, own_no=own_no, at=at)
            if meant is not None:
                return meant  # guard: decision-for-oldest
        return decision

    async def _journal_of(self, episode_id: str) -> Sequence[Recorded]:
        log, clock = self.context.ports.log, self.context.clock
        return await read_current(log, clock, self.context.ports.stack.episode(episode_id))

    async def _send_on(self, decision: Decide) -> None:
        """Send a decision to the episode that it is for."""
        id_ = f"decide.{decision.id}.{decision.episode_id}"
        await self.context.ports.commands.send(decision, id=id_, trace=traceparent())
        log.info("sent on to the oldest", decided=decision.episode_id, by=decision.by)

    async def _share(self, records: Sequence[Recorded], step_no: int) -> None:
        """Send a decision to all episodes with an equal request that was made before it."""
        decision = answering.shared(records, step_no)
        if decision is not None:
            node = self.context
            references = References(node.ports, node.clock, node.turns)
            said, request_no = decision.signal, decision.request_no
            await references.give(said, at=decision.at, request_no=request_no)

    async def _look_after(self, records: Sequence[Recorded], delivery: Incoming) -> None:
        records = await self._expire(records, delivery)
        opened, block = fold(records).opened, block_in(records[-1])
        if opened is not None and block is not None:
            await self._registry.remind(opened, block, at=delivery.at, seq=records[-1].seq)
            await self._registry.watch(opened, after=delivery.at)

    async def _expire(self, records: Sequence[Recorded], delivery: Incoming) -> Sequence[Recorded]:
        async def attempt(journal: Journal) -> Sequence[Recorded]:
            # guard: unanswered-wait-default
            expired = answering.expire(journal.records, at=delivery.at)
            if expired is None:
                return journal.records
            appended = await self._append(expired, journal)
            blocked = answering.waits_of(journal.records)[-1].blocked
            said = "expired: nobody has answered in time"
            # guard: sleep-is-not-unanswered
            if blocked.is_sleep:
                said = "goes on after a sleep"
            elif blocked.is_parked:
                said = f"it fails: {TOO_LATE}"
            log.info(said, step_no=blocked.step_no)
            return appended

        return await self._retry(attempt, records, seed=str(delivery.seq))

    async def _retry(
        self, attempt: Callable[[Journal], Awaitable[T]], records: Sequence[Recorded], *, seed: str
    ) -> T:
        subject = records[-1].subject
        known = Loaded(subject, fold(records), records)
        return await self._store.retry(subject, attempt, seed=seed, known=known)

    async def _append(self, answer: WaitAnswer, journal: Journal) -> Sequence[Recorded]:
        last = answer.events[-1]
        assert isinstance(last, EpisodeApprovalGiven | EpisodeResolved), "what an answer ends with"
        # The same decision gives the same commit, whichever node handles it, however often.
        id_ = f"answer.{journal.subject}.{last.step_no}.{last.decision_id}"
        now = self.context.clock.now()
        return (await self._store.append(journal, answer.events, id=id_, at=now)).records
