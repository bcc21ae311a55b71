"""Brings signals to the episodes that wait for them: load → decide → append → send.

All nodes share one queue of `wait.resolved`, and give what is for one reference in the order of its
arrival. What is appended and what is sent have ids of their own, so whoever takes over after a
crash does both once more, and nothing happens twice. A signal that nobody waits for has a timer:
one that nobody has had by then becomes a dead letter, unless an episode whose branch may still come
to it goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

import msgspec
import structlog

from engine.dead_letters.write import DeadLetterWriter, rejected
from engine.episodes.episode import Status, fold
from engine.errors import BadRequest
from engine.runtime.consumer import Queue, RetryPolicy, Service, consumer_service
from engine.runtime.context import NodeContext
from engine.runtime.gather import gather_bounded
from engine.runtime.permits import Permit
from engine.runtime.slots import Slots
from engine.runtime.store import Loaded, Store, Turns
from engine.runtime.tasks import NodeTasks
from engine.waits import signal as rules
from engine.waits.arrivals import SignalArrivals
from engine.waits.signal import RESOLVED, Signal, SignalState, kept_until, signal_in
from engine.waits.wait import block_in
from streams.clock import Clock
from streams.errors import TooLarge, Unavailable, UnreadableEvent
from streams.json import UNDECODABLE, JsonObject, raw, unraw
from streams.model.commands import Resolve
from streams.model.events import SignalEvent, SignalWaited
from streams.ports.all import Ports
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.domain_events import DomainEvent
from streams.ports.timers import Due, Timer
from streams.subjects import Stack
from streams.tracing import traceparent

QUEUE: Final = "-waits"
"""The owner of the queues of signals. It is no actor; one of this name would share them."""

SIGNAL: Final = "word"
"""Purpose of the timers of signals that nobody has had yet. The key is the signal's id."""

NOBODY_WAITS: Final = "nobody_waits"
"""Reason of a dead letter."""

IN_FLIGHT_MAX: Final = 64
"""Signals worked on at a time."""

LOOKS_IN_FLIGHT_MAX: Final = 16
"""Journals that are read at a time, to see whether their episodes still wait."""

BEFORE_ITS_RESULT: Final = frozenset({Status.QUEUED, Status.RUNNING, Status.BLOCKED})
"""The statuses in which an episode may still wait for something."""

AGAIN_S: Final = 0.25
"""First redelivery delay of what cannot be handled now, in seconds; doubles each time."""

AGAIN_MAX_S: Final = 15.0
"""Longest such delay."""

STRANGE_DELIVERIES_MAX: Final = 50
"""Deliveries of a timer that this version cannot read before it is a dead letter: about 10 minutes,
which is longer than a deploy takes to bring a node that can."""

Incoming: TypeAlias = Delivery[DomainEvent | Unreadable]

Fired: TypeAlias = Delivery[Due | Unreadable]

log = structlog.get_logger("vigil.waits")


class KeptSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that came at some time, by the server's clock."""

    signal: Signal = msgspec.field(name="word")
    at: datetime


class SignalTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of the timer of a signal."""

    kept: KeptSignal
    seq: int
    """Of the event, on the events stream."""


def unserved(
    said: Signal | Resolve, stack: Stack, *, why: str, stream: str, seq: int
) -> Unreadable:
    """Return a signal that no wait has got, for a dead letter; requeued, it is sent anew.

    It came as message `seq` of `stream`.
    """
    return Unreadable(
        reason=NOBODY_WAITS,
        detail=why,
        stream=stream,
        seq=seq,
        subject=stack.event(RESOLVED),
        headers={},
        data=bytes(raw({"ref": said.ref, "result": said.result, "by": said.by})),
    )


@dataclass(frozen=True)
class References:
    """What is waited for: the journals of references, and the commands that follow from them."""

    ports: Ports
    clock: Clock
    turns: Turns = field(default_factory=Turns)

    async def wait(self, waited: SignalWaited) -> None:
        """Append that an episode waits, and send it a signal that it has missed."""
        subject = self.ports.stack.signal(waited.ref)
        # One block may have several waits, for different references.
        id_ = f"{waited.episode_id}.{waited.step_no}.{subject}"  # guard: waits-ahead-are-commits

        async def attempt(before: Loaded[SignalState]) -> SignalState:
            # guard: kept-of-ended-for-next
            first = await self._still_waiting(before.state.first_in_line(waited.episode_id))
            coming = [each.episode_id for each in first]
            events = rules.wait(before.state, waited, coming=coming)
            # A wait that is over by now may be missing because the last signal has left it out.
            if not events or not await is_waiting(self.ports, waited):  # guard: repeat-sends-unsent
                return before.state
            at = self.clock.now()
            return (await self._store.append(before, events, id=f"wait.{id_}", at=at)).state

        state = await self._store.retry(subject, attempt, seed=id_)
        await self._send(state, [waited.episode_id])  # guard: taker-is-sent-signal

    async def give(self, said: Signal, *, at: datetime | None, request_no: int = 0) -> SignalState:
        """Append a signal, and send it to all that wait; return the state after that.

        Args:
            at: when it came, by the server's clock; None: it is for those that wait now alone, and
                is not appended without any to whom no other signal is due.
            request_no: of a decision, the newest request that it is for; 0: a signal is for all.
        """
        subject = self.ports.stack.signal(said.ref)

        async def attempt(before: Loaded[SignalState]) -> SignalState:
            if at is not None and before.state.is_known(said, at=at):
                return before.state
            # guard: decision-for-those-then
            waits = await self._still_waiting(before.state.waits_until(request_no))
            now = before.state.unanswered(waits)
            # guard: persons-word-not-kept
            came_at = at or max((each.since for each in now), default=None)
            if came_at is None:
                return before.state
            # guard: not-sent-ahead
            waiting = [each.episode_id for each in waits if not each.is_ahead]
            ahead = [each.episode_id for each in waits if each.is_ahead]
            given = rules.give(
                before.state, said, waiting, at=came_at, ahead=ahead, request_no=request_no
            )
            if not given:
                return before.state
            id_ = f"give.{subject}.{said.id}.{came_at.isoformat()}"
            return (await self._store.append(before, given, id=id_, at=self.clock.now())).state

        state = await self._store.retry(subject, attempt, seed=said.id)
        await self._send(state, [id_ for id_, due in state.due.items() if due.id == said.id])
        return state

    async def waiting(self, ref: str) -> list[SignalWaited]:
        """Return the waits for `ref` that have no answer due, waits ahead included."""
        state = (await self._store.load(self.ports.stack.signal(ref))).state
        return await self._still_waiting(state.unanswered(state.waits.values()))

    async def newest_no(self, ref: str) -> int:
        """Return the number of all waits for `ref` so far."""
        return (await self.state(ref)).newest_no

    async def state(self, ref: str) -> SignalState:
        """Return the waits for `ref`, and its signals."""
        return (await self._store.load(self.ports.stack.signal(ref))).state

    async def is_seen_to(self, ref: str, episode_id: str, step_no: int) -> bool:
        """Return whether the journal of `ref` has the wait of an episode, and no signal is due."""
        state = await self._seen(ref, episode_id)
        # guard: sweep-finds-lost-signal
        return state.is_registered(episode_id, step_no) and episode_id not in state.due

    async def is_ahead(self, ref: str, episode_id: str, step_no: int) -> bool:
        """Return whether the journal of `ref` has the wait ahead of an episode."""
        return (await self._seen(ref, episode_id)).is_ahead(episode_id, step_no)

    async def is_kept(self, state: SignalState, said: Signal) -> bool:
        """Return whether an episode that a signal is kept for may still come to wait for it."""
        for each in sorted(state.kept_for(said)):
            if await is_open(self.ports, each):
                return True
        return False

    async def _seen(self, ref: str, episode_id: str) -> SignalState:
        subject = self.ports.stack.signal(ref)
        # In turn, so that many that look at one reference read it once.
        return (await self._store.change(subject, lambda *_: (), id=episode_id)).after.state

    @property
    def _store(self) -> Store[SignalState, SignalEvent]:
        return Store(self.ports.log, self.clock, rules.fold, turns=self.turns)

    async def _still_waiting(self, waits: Iterable[SignalWaited]) -> list[SignalWaited]:
        async def look(wait: SignalWaited) -> bool:
            return await is_waiting(self.ports, wait)

        all_ = list(waits)
        found = await gather_bounded(look, all_, in_flight_max=LOOKS_IN_FLIGHT_MAX)
        return [each for each, is_still in zip(all_, found, strict=True) if is_still]

    async def _send(self, state: SignalState, episodes: Collection[str]) -> None:
        for each in episodes:
            due = state.due.get(each)
            if due is not None:
                command = rules.command_for(due, state.waits[each])
                id_ = f"resolve.{each}.{due.id}"
                await self.ports.commands.send(command, id=id_, trace=traceparent())


async def is_waiting(ports: Ports, wait: SignalWaited) -> bool:
    """Return whether an episode that waits still does; with `is_ahead`, whether it may come to."""
    # The journal's leader answers. A wait is written down after it has begun: one that is not there
    # now is over for good.
    try:
        block = block_in(await ports.log.last(ports.stack.episode(wait.episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return True
    if block is None:
        # At work between two waits, it may come to one ahead.
        # guard: working-episode-may-wait
        return wait.is_ahead and await is_open(ports, wait.episode_id)
    if wait.is_ahead:
        return wait.ref in block.refs
    return (block.reference, block.step_no) == (wait.ref, wait.step_no)


async def is_open(ports: Ports, episode_id: str) -> bool:
    """Return whether an episode has no result yet, so that it may come to another wait."""
    try:
        records = await ports.log.read(ports.stack.episode(episode_id))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return True
    return fold(records).status in BEFORE_ITS_RESULT  # guard: resulted-episode-waits-no-more


@dataclass(frozen=True)
class SignalHandler:
    """Handles the events with signals, and their timers, on one node."""

    references: References
    arrivals: SignalArrivals
    dead_letters: DeadLetterWriter
    tasks: NodeTasks
    room: Slots = field(default_factory=lambda: Slots(IN_FLIGHT_MAX))

    async def handle_event(self, delivery: Incoming, _asked_s: float) -> None:
        """Handle an event, in a task of its own."""
        self.arrivals.note(delivery)
        self._start(delivery, partial(self._give, delivery))

    async def handle_timer(self, delivery: Fired, _asked_s: float) -> None:
        """Handle a due timer, in a task of its own."""
        self._start(delivery, partial(self._give_up, delivery))

    def _start(self, delivery: Incoming | Fired, work: Callable[[], Awaitable[None]]) -> None:
        self.room.take_late()
        self.tasks.start(self._answer(delivery, work))

    async def _answer(
        self, delivery: Incoming | Fired, work: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await work()
        except (Unavailable, UnreadableEvent) as error:
            log.warning("handed back: the log cannot be used now", error=str(error))
            await RetryPolicy(AGAIN_S, AGAIN_MAX_S).hand_back(delivery)
        finally:
            self.room.give_back()

    async def _give(self, delivery: Incoming) -> None:
        content = delivery.content
        if isinstance(content, Unreadable):
            return await self._reject(content, delivery)
        stack = self.references.ports.stack
        try:
            said = signal_in(content)
            state = await self._give_in_order(said, delivery)
        except (BadRequest, TooLarge) as error:
            self.arrivals.is_given(delivery.seq)
            reason = "unreadable" if isinstance(error, BadRequest) else "too_large"
            letter = rejected(content, stack, reason=reason, detail=str(error))
            return await self._reject(letter, delivery)
        if state.is_unclaimed(said):
            kept = KeptSignal(signal=said, at=delivery.at)
            timer = SignalTimer(kept=kept, seq=content.seq)
            await self._arm(timer, at=kept_until(delivery.at))  # guard: unawaited-signal-in-no-way
        return await delivery.ack()

    async def _give_in_order(self, said: Signal, delivery: Incoming) -> SignalState:
        """Give a signal once those before it are given that are for the same reference."""
        references, arrivals = self.references, self.arrivals
        # Kept, so that those of this node that wait for their turn read the reference once.
        turn = references.turns.of(references.ports.stack.signal(said.ref))
        async with arrivals.turn(said.ref):
            for earlier in await arrivals.before(delivery.seq, said.ref):
                # Whoever it is delivered to makes it a dead letter.
                with suppress(BadRequest, TooLarge):
                    await references.give(signal_in(earlier), at=earlier.at)
                arrivals.is_given(earlier.seq)
            state = await references.give(said, at=delivery.at)
            arrivals.is_given(delivery.seq)
        del turn
        return state

    async def _give_up(self, delivery: Fired) -> None:
        """Make a signal that nobody has had a dead letter."""
        due = delivery.content
        if isinstance(due, Unreadable):
            return await self._reject(due, delivery)
        timer = timer_in(due.payload)
        if timer is None and delivery.deliveries < STRANGE_DELIVERIES_MAX:
            return await delivery.nak(delay_s=AGAIN_MAX_S)
        if timer is None:
            return await self._reject(self._unreadable_timer(due, delivery), delivery)
        said, at = timer.kept.signal, timer.kept.at
        state = await self.references.give(said, at=at)
        if state.is_unclaimed(said):  # guard: untaken-signal-is-letter
            if not await self.references.is_kept(state, said):  # guard: kept-of-running-no-letter
                return await self._reject(self._unclaimed(timer), delivery)
            # guard: kept-of-ended-is-letter
            await self._arm(timer, at=kept_until(self.references.clock.now()))
        return await delivery.ack()

    async def _arm(self, said: SignalTimer, *, at: datetime) -> None:
        payload = unraw(raw(said))
        timer = Timer(actor=QUEUE, purpose=SIGNAL, key=said.kept.signal.id, payload=payload)
        await self.references.ports.timers.arm(timer, at=at)

    async def _reject(self, letter: Unreadable, delivery: Incoming | Fired) -> None:
        await self.dead_letters.write_message(letter, actor_id="")
        await delivery.term(letter.reason)

    def _unclaimed(self, timer: SignalTimer) -> Unreadable:
        said, stack = timer.kept.signal, self.references.ports.stack
        why, stream = f"no episode waits for {said.ref!r}", stack.stream_of(stack.event(RESOLVED))
        return unserved(said, stack, why=why, stream=stream, seq=timer.seq)

    def _unreadable_timer(self, due: Due, delivery: Fired) -> Unreadable:
        stack = self.references.ports.stack
        subject = stack.due(QUEUE)
        return Unreadable(
            reason="unreadable",
            detail=f"this version cannot read the timer {due.purpose} {due.key!r}",
            stream=stack.stream_of(subject),
            seq=delivery.seq,
            subject=subject,
            headers={},
            data=bytes(raw(due)),
        )


def timer_in(payload: JsonObject) -> SignalTimer | None:
    """Return the payload of a signal's timer; None if this version cannot read it."""
    try:
        return msgspec.json.decode(bytes(raw(payload)), type=SignalTimer)
    except UNDECODABLE:
        return None


def services_for(context: NodeContext, runs: Permit) -> list[Service]:
    """Return the services for signals: their events, and their timers."""
    ports, clock = context.ports, context.clock
    references = References(ports, clock, context.turns)
    arrivals = SignalArrivals(QUEUE, ports.domain_events)
    means = references, arrivals, DeadLetterWriter(ports, clock), context.tasks
    events, timers = SignalHandler(*means), SignalHandler(*means)
    queue = Queue(open=arrivals.open, labels={"queue": "waits"})
    due = Queue(open=lambda: ports.timers.open(QUEUE), labels={"queue": "waits_due"})
    return [
        consumer_service(queue, events.handle_event, room=events.room, permit=runs, clock=clock),
        consumer_service(due, timers.handle_timer, room=timers.room, permit=runs, clock=clock),
    ]
