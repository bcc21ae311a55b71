"""The input of a lane's scheduler: events in the order of their streams, and due timers.

Events come from the queues that gates share. While one node alone pulls them, they come in the
order of their streams, and a delivery that is missing in the count has gone elsewhere: then all are
read again once the missing one comes again, too. What the nodes before had is sorted, and nothing
newer is passed on before it. Lookups run for many events at a time, but one after the other for the
same expectation and subject, so that of two events the first gets the cooldown. A full lane pulls
no more events. Due timers share a queue with the ends of episodes, which make room: so they are
still taken, and handed back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import structlog

from engine import telemetry
from engine.app.actor import Expectation
from engine.app.triggers import entity_id
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import fire
from engine.episodes import open as opening
from engine.episodes.overlap.store import Holds
from engine.episodes.recovery import NO_SUCH_EPISODE, NO_SUCH_EXPECTATION
from engine.lanes import lane as lane_rules
from engine.lanes.effects import LaneEffects
from engine.lanes.lane import Cause, RequestedEpisode, Wanted
from engine.runtime.consumer import DeliveryCount, InOrder, Queue, consume_batches
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from engine.runtime.slots import Slots
from engine.triggers import debounce, schedule
from engine.triggers.admit import STRANGE_DELIVERIES_MAX, leave
from engine.triggers.evaluate import TriggerEvaluator
from engine.triggers.events import ForeignQueue, UnwatchedEvents, open_events
from engine.triggers.rules import Gated, Part
from engine.triggers.timers import GOES_ON, RESTING_S, TimerRouter
from engine.waits.wait import is_answered, step_answered
from engine.workflows.start import InstanceStart
from streams.clock import Clock
from streams.errors import Incompatible, NoSuchStream, Unavailable
from streams.json import text_at
from streams.model.commands import Start
from streams.model.events import EpisodeOpened
from streams.ports.delivery import ACK_WAIT_S, Delivery, OrderedSource, Unreadable
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Recorded
from streams.ports.timers import Due
from streams.tracing import context_of, traceparent

ITEMS_MAX: Final = 1_000
"""Evaluated events that wait in memory for a decision, at most."""

DUE_MAX: Final = 256
"""Due messages that are unacknowledged at a time."""

EPISODES_MAX: Final = 500
"""Episodes that one decision places at most: their tickets, and the rest of the lane, fit in one
commit."""


OUTSIDE_MAX: Final = 1_000
"""Due messages that are kept outside at a time. Beyond that they are let in, and more wait than
`queue_max`: the server gives out 10,000 unacknowledged ones, and the end of an episode may be
behind them."""

EXPECTED_S: Final = 30.0
"""How long room is kept for a message that does not come again: six times its delay. Its timer may
have been removed, or another node may have it."""

CAUSES: Final = frozenset({schedule.PURPOSE, debounce.PURPOSE, fire.PURPOSE})
"""Purposes of timers that may open an episode."""

Incoming: TypeAlias = Delivery[Due | Unreadable]


READ_MAX: Final = 256
"""Events read in one go."""

SETTLING_MAX: Final = 64
"""Subjects whose events are settled at a time."""

Outcome: TypeAlias = EpisodeOpened | Unreadable | None

log = structlog.get_logger("vigil.lanes")


@dataclass(frozen=True, kw_only=True)
class InputItem:
    """One event or one due message, evaluated."""

    asked: Sequence[RequestedEpisode] = ()
    left: str = ""
    """The episode that has ended, or waits for something else; empty: none."""
    delivery: Delivery[Any] | None = None
    """To be acknowledged."""
    is_due: bool = False
    """Whether it came due, and has a slot of `Mailbox.due_room`."""


@dataclass(kw_only=True)
class InputBatch:
    """What one decision is made on."""

    items: list[InputItem] = field(default_factory=list)

    @property
    def asked(self) -> list[RequestedEpisode]:
        """The requested episodes, in the order of their causes."""
        return [asked for item in self.items for asked in item.asked]

    @property
    def left(self) -> list[str]:
        """The episodes that have ended, or wait for something else."""
        return [item.left for item in self.items if item.left]

    @property
    def deliveries(self) -> list[Delivery[Any]]:
        """What is to be acknowledged."""
        return [item.delivery for item in self.items if item.delivery is not None]

    @property
    def due(self) -> list[Delivery[Any]]:
        """What of it came due."""
        return [item.delivery for item in self.items if item.delivery and item.is_due]


class Mailbox:
    """The queue between the readers and the scheduler's decisions."""

    def __init__(self) -> None:
        self.due_room = Slots(DUE_MAX)
        self._items: deque[InputItem] = deque()
        self._most = 0
        self._expected = 0
        self._unsettled = 0
        """Episodes that events asked for and that no decision has finished with."""
        self._open = 0
        """Items that no decision has finished with."""
        self._news = asyncio.Event()
        self._moved = asyncio.Event()

    def put(self, items: Iterable[InputItem]) -> None:
        """Queue items, in order."""
        for item in items:
            self._items.append(item)
            self._unsettled += len(item.asked)
            self._open += 1
        self._news.set()

    def nudge(self) -> None:
        """Have the scheduler decide again, though nothing was queued."""
        self._news.set()

    async def take(self) -> InputBatch:
        """Wait for input, and return the oldest: items up to `EPISODES_MAX` requested episodes."""
        await self._news.wait()
        batch, asked = InputBatch(), 0
        while self._items and (asked < EPISODES_MAX):
            item = self._items.popleft()
            asked += len(item.asked)
            batch.items.append(item)
        if not self._items:
            self._news.clear()
        return batch

    def finish(self, batch: InputBatch) -> None:
        """Note that a decision has handled `batch`."""
        self._unsettled -= len(batch.asked)
        self._open -= len(batch.items)
        for _ in batch.due:
            self.due_room.give_back()
        self._moved.set()

    def allow(self, most: int) -> None:
        """Let events ask for up to `most` episodes beyond those in the lane."""
        self._most = most
        self._moved.set()

    def expect(self, count: int) -> None:
        """Keep room for `count` episodes that timers, not events, will ask for again."""
        self._expected = count
        self._moved.set()

    async def wait_room(self) -> int:
        """Wait until events may ask for an episode, and return for how many they may."""
        while not self.has_room:
            self._moved.clear()
            await self._moved.wait()
        return self.room - self._expected

    async def wait_settled(self) -> None:
        """Wait until every item was decided on, and what brought it is acknowledged."""
        while self._open:
            self._moved.clear()
            await self._moved.wait()

    def unanswered(self) -> list[Delivery[Any]]:
        """Return what came due and no decision has seen."""
        return InputBatch(items=list(self._items)).due

    @property
    def has_room(self) -> bool:
        """Whether events may ask for an episode."""
        return self.room > self._expected

    @property
    def room(self) -> int:
        """How many more episodes may be asked for; below 1, none."""
        # guard: dispatcher-reads-bounded
        return min(self._most - self._unsettled, ITEMS_MAX - len(self._items))


@dataclass(frozen=True, kw_only=True)
class EventQueue:
    """One queue of an actor's events."""

    label: str
    """In metrics: `events`, or the name of a stream."""
    open: Callable[[], Awaitable[OrderedSource[DomainEvent | Unreadable]]]
    fan_out: int
    """Most episodes that one event can ask for."""


@dataclass
class EventQueues:
    """The queues of one actor's events, on one node."""

    context: ActorContext
    foreign: Sequence[ForeignQueue] = field(init=False)
    """Those of streams of others."""

    def __post_init__(self) -> None:
        streams = self.context.actor.foreign_streams()
        self.foreign = [ForeignQueue(self.context, each) for each in streams]

    async def begin(self) -> None:
        """Make the actor's queues, which begin at new messages."""
        if self.context.actor.event_names():
            await (await open_events(self.context)).close()
        for queue in self.foreign:
            # Whoever reads it says what is wrong with it.
            with suppress(Incompatible):
                await queue.begin()

    def own(self) -> EventQueue | None:
        """Return the queue of the stack's own events; None: the actor watches none."""
        expectations = self.context.actor.expectations.values()
        watching = Counter(name for each in expectations for name in each.event_names)
        if not watching:
            return None
        open_ = partial(open_events, self.context)
        return EventQueue(label="events", open=open_, fan_out=max(watching.values()))


def wanted_of(
    opened: EpisodeOpened, expectation: Expectation, *, newest: Recorded | None = None
) -> Wanted:
    """Return the place that an episode asks for; `newest` is its newest commit, if it is open."""
    resumes, answered_step = is_answered(newest), step_answered(newest)
    key = text_at(opened.trigger.payload, expectation.concurrency_key)
    return Wanted(
        episode_id=opened.episode_id,
        expectation_id=opened.expectation_id,
        priority=opened.priority,
        key=key,
        key_limit=expectation.concurrency if key else 0,
        start_by=None if resumes else opened.start_by,
        resumes=resumes,
        answered_step=answered_step,
    )


@dataclass
class Backpressure:
    """Holds back due messages while a lane is full, for one term."""

    mailbox: Mailbox
    clock: Clock
    _outside: dict[str, float] = field(default_factory=dict)
    """Id of a due message → until when it is expected, on the monotonic clock."""

    async def let_in(self, deliveries: Sequence[Incoming]) -> list[Incoming]:
        """Return those that may come in, hand back the rest; keep room for both."""
        now_s, room, coming = self.clock.monotonic_s(), self.mailbox.room, 0
        inside: list[Incoming] = []
        for delivery in deliveries:
            due = delivery.content
            if not isinstance(due, Due) or due.purpose not in CAUSES:
                inside.append(delivery)
            elif room > coming or not self._has_room_for(due.id):  # guard: full-line-keeps-due-out
                coming += 1
                self._outside.pop(due.id, None)
                inside.append(delivery)
            else:
                self._outside[due.id] = now_s + EXPECTED_S
                await leave(delivery)
        self._outside = {id_: until for id_, until in self._outside.items() if until > now_s}
        self.mailbox.expect(len(self._outside) + coming)  # guard: outside-before-newer
        return inside

    def shut(self) -> None:
        """Keep room only for those outside: the others have asked for theirs."""
        self.mailbox.expect(len(self._outside))

    def _has_room_for(self, id_: str) -> bool:
        return id_ in self._outside or len(self._outside) < OUTSIDE_MAX  # guard: end-let-in


@dataclass
class LaneInput:
    """The input of one actor's scheduler, for one term."""

    evaluator: TriggerEvaluator
    dead_letters: DeadLetterWriter
    effects: LaneEffects
    mailbox: Mailbox
    over: asyncio.Event
    """Set at the end of the term."""
    takes_causes: bool
    """Whether the actor may be woken. What has been woken goes on in any case."""
    check_lease: Callable[[], None]
    """Raises `Unavailable` if the lane may be another node's by now."""
    unsettled_s: float = 0.0
    """How long others may have unacknowledged events: until then none are read."""
    waits_for_all: bool = True
    """Whether to read no newer events before all that others had have come again."""
    is_overtaken: bool = False
    """Whether newer events came before some that others had."""
    _sources: list[OrderedSource[DomainEvent | Unreadable]] = field(default_factory=list)
    _is_whole: bool = True
    """Whether every event delivered since the term began came here."""

    def __post_init__(self) -> None:
        self._context = self.evaluator.context
        self._unwatched = UnwatchedEvents(self._context)
        self._router = TimerRouter(self.evaluator)
        self._expectations = self._context.actor.expectations
        self._backpressure = Backpressure(self.mailbox, self._context.clock)

    async def take_events(self, queue: EventQueue) -> None:
        """Bring the events of a queue in the order of their stream, for ever.

        Raises `Unavailable` if others may have some, and `Incompatible` if it cannot be opened.
        """
        clock = self._context.clock
        labels = {"actor": self._context.actor.id, "queue": queue.label}
        source = await queue.open()
        self._sources.append(source)
        await clock.sleep(self.unsettled_s)  # guard: dead-nodes-events-first

        async def wait_room(count: DeliveryCount) -> int:
            return self._share(await self._wait_room(source, count), queue)

        in_order = InOrder(
            source=source,
            room=wait_room,
            check=self.check_lease,
            clock=clock,
            waits_for_all=self.waits_for_all,
        )
        try:
            is_overtaken = await in_order.consume(self._handle, labels=labels)
        except NoSuchStream:
            self._sources.remove(source)
            await source.close()
            raise
        self._is_whole = False  # guard: missing-delivery-older-may-come
        self.is_overtaken |= is_overtaken
        if is_overtaken:
            raise Unavailable(queue.label, detail="others still have some of the deliveries")
        raise Unavailable(queue.label, detail="a delivery went elsewhere, or was lost")

    async def take_foreign(self, queue: ForeignQueue) -> None:
        """Bring the events of a stream of others, while it exists, as `take_events` does."""
        stream, expectations = queue.foreign.stream, self._expectations.values()
        watched = [{one.stream for one in each.foreign_streams} for each in expectations]
        fan_out = sum(stream in streams for streams in watched)
        events = EventQueue(label=stream, open=queue.open, fan_out=fan_out)
        try:
            while True:
                await queue.wait_begun()
                # guard: lane-reopens-remade-stream
                with suppress(NoSuchStream):  # It was deleted meanwhile.
                    await self.take_events(events)
        except Incompatible as error:  # guard: unfollowable-stream-stops-none
            # The rest of what wakes the actor goes on.
            actor = self._context.actor.id
            log.warning("the stream cannot be read", actor=actor, stream=stream, why=str(error))

    async def hand_back(self) -> bool:
        """Hand back at once all events that are not acknowledged, and close their queues.

        Returns whether all of them come again at once; else only once `ACK_WAIT_S` is over.
        """
        try:
            self.check_lease()  # guard: no-event-without-lane-lease
        except Unavailable:  # Another node pulls by now: what is handed back would come in between.
            self._is_whole = False  # guard: lost-lease-hands-nothing-back
        for source in self._sources:
            self._is_whole &= await source.hand_back(is_whole=self._is_whole)
            await source.close()
        return self._is_whole

    async def take_due(self) -> None:
        """Bring what comes due, until the term is over."""
        context = self._context
        queue = Queue(
            open=lambda: context.ports.timers.open(context.actor.id),
            labels={"actor": context.actor.id, "queue": "due"},
            opened=self._tick,
            pauses=False,
        )
        room, clock = self.mailbox.due_room, context.clock
        await consume_batches(queue, self._handle_due, room=room, until=self.over, clock=clock)

    async def _tick(self) -> None:
        if self.takes_causes:
            await self._router.ticker.ensure()

    async def _handle_due(self, deliveries: Sequence[Incoming]) -> None:
        if self.takes_causes:
            deliveries = await self._backpressure.let_in(deliveries)
        items = await asyncio.gather(*(self._look_at(each) for each in deliveries))
        kept = [item for item in items if item is not None]
        for _ in kept:
            self.mailbox.due_room.try_take()
        self.mailbox.put(kept)
        self._backpressure.shut()

    async def _wait_room(
        self, source: OrderedSource[DomainEvent | Unreadable], count: DeliveryCount
    ) -> int:
        if not self.mailbox.has_room:
            # What is handed back comes again before what is older and not acknowledged.
            await self.mailbox.wait_settled()  # guard: hand-back-after-older
        if not self.mailbox.has_room:
            await source.pause()  # guard: full-lane-hands-back
            count.begin_anew()
        return await self.mailbox.wait_room()

    def _share(self, room: int, queue: EventQueue) -> int:
        """Return how many events may be read while there is room for so many episodes."""
        # Each event may ask for several episodes, and others read at the same time. At least one
        # may be read, or the last places could never be used: a lane may exceed its limit by what
        # one event each asks for.
        actor = self._context.actor
        readers = bool(actor.event_names()) + len(actor.foreign_streams())
        # guard: event-counts-its-fan-out
        return max(1, min(room // (queue.fan_out * readers), READ_MAX))

    async def _handle(
        self, deliveries: Sequence[Delivery[DomainEvent | Unreadable]], asked_s: float
    ) -> None:
        self.mailbox.put(await self._rule_on(deliveries, asked_s))

    async def _rule_on(
        self, deliveries: Sequence[Delivery[DomainEvent | Unreadable]], asked_s: float
    ) -> list[InputItem]:
        # guard: lane-leaves-unwatched
        mine = [each for each in deliveries if not await self._unwatched.hand_back(each)]
        parts = [await self._parts(each, is_late=self._is_late(asked_s)) for each in mine]
        flat = [part for each in parts for part in each]
        outcomes = iter(await self._settle_all(flat, asked_s=asked_s))
        items: list[InputItem] = []
        for delivery, each in zip(mine, parts, strict=True):
            own = list(islice(outcomes, len(each)))
            asked = await self._asked(own, delivery.content, delivery)
            items.append(InputItem(asked=asked, delivery=delivery))
        return items

    async def _parts(
        self, delivery: Delivery[DomainEvent | Unreadable], *, is_late: bool
    ) -> Sequence[Part]:
        # guard: repeat-may-be-ruled-on
        content, is_repeat = delivery.content, delivery.deliveries > 1
        if isinstance(content, Unreadable):
            return [content]
        return await self.evaluator.rule(content, is_repeat=is_repeat, is_late=is_late)

    def _is_late(self, asked_s: float) -> bool:
        """Return whether others may have been delivered what was requested then."""
        return self._context.clock.monotonic_s() - asked_s >= ACK_WAIT_S

    async def _settle_all(self, parts: Sequence[Part], *, asked_s: float) -> list[Outcome]:
        """Return what each part comes to. Those about the same subject are settled in order."""
        outcomes: list[Outcome] = [None] * len(parts)
        lines: defaultdict[tuple[str, str] | None, list[int]] = defaultdict(list)
        for index, part in enumerate(parts):
            lines[_subject_of(part)].append(index)  # guard: subject-settled-in-order

        async def settle(line: Sequence[int]) -> None:
            for index in line:
                outcome = await self.evaluator.evaluate(
                    parts[index], is_late=lambda: self._is_late(asked_s)
                )
                assert not isinstance(outcome, InstanceStart), "no workflow's causes take turns"
                outcomes[index] = outcome

        await gather_bounded(settle, lines.values(), in_flight_max=SETTLING_MAX)
        return outcomes

    async def _asked(
        self,
        outcomes: Sequence[Outcome],
        cause: Cause | Unreadable,
        delivery: Delivery[object],
    ) -> list[RequestedEpisode]:
        asked: list[RequestedEpisode] = []
        for outcome in outcomes:
            if isinstance(outcome, Unreadable):
                await self.dead_letters.write_message(outcome, actor_id=self._context.actor.id)
            elif outcome is not None and not isinstance(cause, Unreadable):
                asked.append(self._asking(outcome, cause, delivery))
        return asked

    def _asking(
        self,
        opened: EpisodeOpened,
        cause: Cause,
        delivery: Delivery[object],
        *,
        is_open: bool = False,
        newest: Recorded | None = None,
    ) -> RequestedEpisode:
        expectation = self._expectations[opened.expectation_id]
        with telemetry.span("gate", context_of(delivery.trace)):
            return RequestedEpisode(
                opened=opened,
                wanted=wanted_of(opened, expectation, newest=newest),
                cause=cause,
                seq=delivery.seq,
                trace=traceparent(),
                is_open=is_open,
                is_repeat=delivery.deliveries > 1,  # guard: first-drop-not-looked-up
            )

    async def _look_at(self, delivery: Delivery[Due | Unreadable]) -> InputItem | None:
        """Return what a due message comes to; None if it was handed back."""
        due = delivery.content
        match due:
            case Due(purpose=opening.LEFT):
                is_left = await self._is_left(due)
                return InputItem(left=due.key if is_left else "", delivery=delivery, is_due=True)
            case Due(purpose=opening.PLACE):
                return await self._place(due, delivery)
            # guard: no-causes-none-due
            case Due() if not self.takes_causes and due.purpose not in GOES_ON:
                await delivery.nak(delay_s=RESTING_S)
                return None
        parts = await self._due_parts(due, delivery)
        if parts is None:
            await leave(delivery)
            return None
        outcomes = await self._settle_all(parts, asked_s=self._context.clock.monotonic_s())
        asked = await self._asked(outcomes, due, delivery)
        return InputItem(asked=asked, delivery=delivery, is_due=True)

    async def _is_left(self, due: Due) -> bool:
        """Return whether an episode that left its place needs it no more."""
        # One that waited for something else may have its answer by now: then it keeps the place.
        if opening.FOR_NOW not in due.payload:  # guard: gone-on-keeps-place
            return True
        newest = await self.effects.newest(due.key)
        return newest is None or lane_rules.needs_no_turn(newest)

    async def _place(self, due: Due, delivery: Delivery[Due | Unreadable]) -> InputItem | None:
        """Return what a request for a place comes to: an episode only if it waits for its turn."""
        newest = await self.effects.newest(due.key)
        opened = await self.effects.opening_of(newest)
        is_known = opened is None or opened.expectation_id in self._expectations
        if newest is not None and is_known:
            if opened is None or await self._is_held(opened):
                return InputItem(delivery=delivery, is_due=True)
            asked = self._asking(opened, due, delivery, is_open=True, newest=newest)
            return InputItem(asked=[asked], delivery=delivery, is_due=True)
        if opening.IF_THERE in due.payload and await self.effects.is_missing(due.key):
            return InputItem(delivery=delivery, is_due=True)
        if self._is_for_others(due):
            await leave(delivery)
            return None
        reason = NO_SUCH_EPISODE if newest is None else NO_SUCH_EXPECTATION
        start = Start(actor_id=self._context.actor.id, episode_id=due.key)
        detail = "it waits for its turn, and no node knows it"
        # guard: unknown-wish-dead-letter
        await self.dead_letters.write_command(start, seq=delivery.seq, reason=reason, detail=detail)
        return InputItem(delivery=delivery, is_due=True)

    async def _is_held(self, opened: EpisodeOpened) -> bool:
        """Return whether an episode waits for the end of another one, which calls for it then."""
        if not opened.held_by:
            return False
        context = self._context
        return not await Holds(context.ports, context.clock).may_start(opened)

    async def _due_parts(
        self, due: Due | Unreadable, delivery: Delivery[Due | Unreadable]
    ) -> Sequence[Part] | None:
        """Return the parts of a due message; None: it is left to other nodes."""
        if isinstance(due, Unreadable):
            return [due]
        parts = await self._router.parts(due, delivery)
        if parts is not None or self._is_for_others(due):
            return parts
        letter = self._router.forgotten(due, delivery)
        return [] if letter is None else [letter]

    def _is_for_others(self, due: Due) -> bool:
        return self._router.returns_of(due) < STRANGE_DELIVERIES_MAX


def _subject_of(part: Part) -> tuple[str, str] | None:
    """Return the expectation and subject of a part whose outcome depends on a gate's state."""
    if not isinstance(part, Gated):
        return None
    expectation = part.expectation
    return expectation.name, entity_id(part.event.payload, expectation.subject_key)
