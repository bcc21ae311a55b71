"""Brings signals to the episodes that wait for them: take → find → send → acknowledge.

All nodes share one queue of `wait.resolved`. A signal without a waiting episode is stored for an
hour: an episode that begins to wait finds the newest one of its reference. A timer looks again for
episodes that a lagging replica had hidden, and for older signals; then the signal becomes a dead
letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
import structlog

from engine.dead_letters.write import DeadLetterWriter
from engine.errors import BadRequest
from engine.runtime.consumer import Queue, RetryPolicy, Service, consumer_service
from engine.runtime.context import NodeContext
from engine.runtime.permits import Permit
from engine.runtime.slots import Slots
from engine.runtime.tasks import NodeTasks
from engine.waits.signal import (
    KEPT_S,
    RESOLVED,
    KeptSignal,
    PutBy,
    Signal,
    WaitEntry,
    command_for,
    entry_in,
    is_newer,
    kept_for,
    look_at,
    may_be_missed,
    retry_in,
    signal_in,
)
from engine.waits.wait import block_in
from streams.errors import RevisionConflict, Unavailable, UnreadableEvent
from streams.json import raw, unraw
from streams.keys import brought_key, signal_key, wait_key, waits_for
from streams.ports.all import Ports
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.domain_events import DomainEvent
from streams.ports.timers import Due, Timer
from streams.tracing import traceparent

LOOKS_IN_FLIGHT_MAX: Final = 16
"""Journals that are read at a time, to see whether their episodes still wait."""


QUEUE: Final = "-waits"
"""The owner of the queues of signals. It is no actor; one of this name would share them."""

SIGNAL: Final = "word"
"""Purpose of the timers that look up waiting episodes again. The key is the signal's id."""

LOOK_AGAIN_S: Final = 5.0
"""Redelivery delay of a signal that cannot be handled now, in seconds."""

STRANGE_DELIVERIES_MAX: Final = 120
"""Deliveries of what this version cannot read before it is a dead letter: about 10 minutes, which
is longer than a deploy takes to bring a node that can."""

NOBODY_WAITS: Final = "nobody_waits"
"""Reason of a dead letter."""


IN_FLIGHT_MAX: Final = 64
"""Events worked on at a time."""

AGAIN_S: Final = 0.25
"""First redelivery delay while the log is unavailable; doubles each time."""

AGAIN_MAX_S: Final = 15.0
"""Longest such delay."""

LOOKS_MIN: Final = 2
"""Least number of look-ups: a replica may lack an entry that was written just before."""

LAG_S: Final = 2.0
"""Between the two look-ups, in seconds: longer than any replica lags."""

Incoming: TypeAlias = Delivery[DomainEvent | Unreadable]

log = structlog.get_logger("vigil.waits")


async def find_waiters(ports: Ports, ref: str) -> Sequence[WaitEntry]:
    """Return the episodes that wait for `ref`, and remove the entries of others."""
    entries = await ports.registry.entries(under=waits_for(ref))
    said = {key: entry_in(each.value) for key, each in entries.items() if each.value is not None}
    found = {key: each for key, each in said.items() if each is not None and each.ref == ref}
    room = asyncio.Semaphore(LOOKS_IN_FLIGHT_MAX)

    async def check(key: str, entry: WaitEntry) -> bool:
        async with room:
            return await _is_waiting(ports, key, entry)

    waiting = await asyncio.gather(*(check(key, each) for key, each in found.items()))
    return [each for each, waits in zip(found.values(), waiting, strict=True) if waits]


async def _is_waiting(ports: Ports, key: str, entry: WaitEntry) -> bool:
    """Return whether an episode waits as its entry says, and remove the entry if not."""
    # An entry is written after its wait has begun, or by a frozen node after its end: so a wait
    # that the journal's leader does not have now is over.
    try:
        block = block_in(await ports.log.last(ports.stack.episode(entry.episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return True
    if block is not None and key == wait_key(block.ref, entry.episode_id, block.step_no):
        return True
    await ports.registry.delete(key)
    return False


async def keep(ports: Ports, said: Signal, *, at: datetime) -> None:
    """Store a signal of time `at`, for episodes that wait already and have no entry yet."""
    key, kept = signal_key(said.ref), msgspec.json.encode(KeptSignal(signal=said, at=at))
    before = await ports.gates.get(key)
    if before is not None and before.value is not None and is_newer(before.value, than=at):
        return
    try:
        revision = before.revision if before is not None else 0
        await ports.gates.put(key, kept, after=revision, ttl_s=KEPT_S)
    except RevisionConflict as error:
        raise Unavailable(key, detail="others keep word for the same at this time") from error


async def missed(ports: Ports, ref: str, *, since: datetime) -> Signal | None:
    """Return the stored signal for an episode that waits for `ref`; None: none."""
    # One from before the wait counts, too, if no episode has had it.
    entry = await ports.gates.get(signal_key(ref))
    if entry is None or entry.value is None:
        return None
    kept = kept_for(entry.value, ref)
    if kept is None:
        return None
    is_theirs = may_be_missed(kept, since=since) or not await is_brought(ports, kept.signal)
    return kept.signal if is_theirs else None


async def is_brought(ports: Ports, said: Signal) -> bool:
    """Return whether an episode was found for the signal."""
    entry = await ports.gates.get(brought_key(said.id))
    return entry is not None and entry.value is not None


async def bring(ports: Ports, said: Signal, waiters: Iterable[WaitEntry]) -> None:
    """Send the signal to each of `waiters`; safe to repeat."""
    # It is marked as brought first: those that have it wait no more.
    await ports.gates.put(brought_key(said.id), b"", ttl_s=KEPT_S)
    for each in waiters:
        command = command_for(said, each)
        id_ = f"resolve.{each.episode_id}.{said.id}"
        await ports.commands.send(command, id=id_, trace=traceparent())


@dataclass(frozen=True)
class SignalRetries:
    """Handles the timers that look up waiting episodes again, on one node."""

    ports: Ports
    dead_letters: DeadLetterWriter
    tasks: NodeTasks
    room: Slots = field(default_factory=lambda: Slots(IN_FLIGHT_MAX))

    async def handle(self, delivery: Delivery[Due | Unreadable], _asked_s: float) -> None:
        """Handle a due timer, in a task of its own."""
        self.room.take_late()
        self.tasks.start(self._answer(delivery))

    async def _answer(self, delivery: Delivery[Due | Unreadable]) -> None:
        try:
            await self._look(delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            await delivery.nak(delay_s=LOOK_AGAIN_S)
        finally:
            self.room.give_back()

    async def _look(self, delivery: Delivery[Due | Unreadable]) -> None:
        due = delivery.content
        if isinstance(due, Unreadable):
            return await self._write_dead_letter(due, delivery)
        found = retry_in(due.payload)
        if found is None and delivery.deliveries < STRANGE_DELIVERIES_MAX:
            return await delivery.nak(delay_s=LOOK_AGAIN_S)
        if found is None:
            return await self._write_dead_letter(_strange(self.ports, due, delivery), delivery)
        said = found.kept.signal
        if await is_brought(self.ports, said):
            return await delivery.ack()
        waiters = await find_waiters(self.ports, said.ref)
        if waiters:
            await bring(self.ports, said, waiters)
            log.info("word brought", ref=said.ref, by=said.by, episodes=len(waiters))
        elif look_at(found.kept, after=due.fired_at) is None:
            detail = f"no episode waits for {said.ref!r}"
            data = bytes(raw({"ref": said.ref, "result": said.result, "by": said.by}))
            nobodys = letter(
                self.ports, reason=NOBODY_WAITS, detail=detail, seq=found.seq, data=data
            )
            return await self._write_dead_letter(nobodys, delivery)
        else:
            await schedule_retry(self.ports, found, after=due.fired_at)
        return await delivery.ack()

    async def _write_dead_letter(
        self, message: Unreadable, delivery: Delivery[Due | Unreadable]
    ) -> None:
        await self.dead_letters.write_message(message, actor_id="")
        await delivery.term(message.reason)


async def schedule_retry(ports: Ports, signal: PutBy, *, after: datetime) -> None:
    """Arm the timer that looks up waiting episodes again; safe to repeat."""
    payload = unraw(raw(signal))
    timer = Timer(actor=QUEUE, purpose=SIGNAL, key=signal.kept.signal.id, payload=payload)
    await ports.timers.arm(timer, at=look_at(signal.kept, after=after) or after)


def letter(ports: Ports, *, reason: str, detail: str, seq: int, data: bytes) -> Unreadable:
    """Return the dead letter for a signal in the event at `seq`."""
    subject = ports.stack.event(RESOLVED)
    return Unreadable(
        reason=reason,
        detail=detail,
        stream=ports.stack.stream_of(subject),
        seq=seq,
        subject=subject,
        headers={},
        data=data,
    )


def _strange(ports: Ports, due: Due, delivery: Delivery[Due | Unreadable]) -> Unreadable:
    subject = ports.stack.due(QUEUE)
    return Unreadable(
        reason="unreadable",
        detail=f"this version cannot read the timer {due.purpose} {due.key!r}",
        stream=ports.stack.stream_of(subject),
        seq=delivery.seq,
        subject=subject,
        headers={},
        data=bytes(raw(due)),
    )


@dataclass(frozen=True)
class SignalConsumer:
    """Handles the events with signals, on one node."""

    ports: Ports
    dead_letters: DeadLetterWriter
    tasks: NodeTasks
    room: Slots = field(default_factory=lambda: Slots(IN_FLIGHT_MAX))

    async def handle(self, delivery: Incoming, _asked_s: float) -> None:
        """Handle an event, in a task of its own."""
        self.room.take_late()
        self.tasks.start(self._answer(delivery))

    async def _answer(self, delivery: Incoming) -> None:
        try:
            await self._bring(delivery)
        except Unavailable as error:
            log.warning("handed back: the log is away", error=str(error))
            await _again(delivery)
        finally:
            self.room.give_back()

    async def _bring(self, delivery: Incoming) -> None:
        content = delivery.content
        if isinstance(content, Unreadable):
            return await self._write_dead_letter(content, delivery)
        try:
            said = signal_in(content)
        except BadRequest as error:
            return await self._write_dead_letter(
                _unreadable(self.ports, content, str(error)), delivery
            )
        # Before the look-up: an episode that is not found then looks for this.
        await keep(self.ports, said, at=delivery.at)
        waiters = await find_waiters(self.ports, said.ref)
        if not waiters and await is_brought(self.ports, said):
            return await delivery.ack()
        if not waiters:
            kept = KeptSignal(signal=said, at=delivery.at)
            await schedule_retry(self.ports, PutBy(kept=kept, seq=content.seq), after=delivery.at)
            return await delivery.ack()
        await bring(self.ports, said, waiters)
        log.info("word brought", ref=said.ref, by=said.by, episodes=len(waiters))
        if delivery.deliveries < LOOKS_MIN:
            return await delivery.nak(delay_s=LAG_S)
        return await delivery.ack()

    async def _write_dead_letter(self, letter: Unreadable, delivery: Incoming) -> None:
        await self.dead_letters.write_message(letter, actor_id="")
        await delivery.term(letter.reason)


def _unreadable(ports: Ports, event: DomainEvent, detail: str) -> Unreadable:
    data = bytes(raw(event.payload))
    return letter(ports, reason="unreadable", detail=detail, seq=event.seq, data=data)


async def _again(delivery: Incoming) -> None:
    await RetryPolicy(AGAIN_S, AGAIN_MAX_S).hand_back(delivery)


def services_for(context: NodeContext, runs: Permit) -> list[Service]:
    """Return the services for signals: their events, and the timers that look again."""
    ports, clock = context.ports, context.clock
    means = (ports, DeadLetterWriter(ports, clock), context.tasks)
    consumer, retries = SignalConsumer(*means), SignalRetries(*means)
    events = Queue(
        open=lambda: ports.domain_events.open(QUEUE, [RESOLVED]), labels={"queue": "waits"}
    )
    due = Queue(open=lambda: ports.timers.open(QUEUE), labels={"queue": "waits_due"})
    return [
        consumer_service(events, consumer.handle, room=consumer.room, permit=runs, clock=clock),
        consumer_service(due, retries.handle, room=retries.room, permit=runs, clock=clock),
    ]
