"""The input of a lane's scheduler: events in the order of their streams, and due timers.

Lookups run for many events at a time, but one after the other for the same expectation and subject,
so that of two events the first gets the cooldown. A full lane reads no more events. Due timers
share a queue with the ends of episodes, which make room: so they are still taken, and handed back.

After a takeover, all events that the streams have by then may have been evaluated before. The last
scheduler opened episodes in the order of events, and stored its position before it went on. Cursors
are stored per event name, so a version of the actor that watches more names misses nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import structlog

from engine import telemetry
from engine.app.actor import Expectation
from engine.app.triggers import entity_id, text_at
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import fire
from engine.episodes import open as opening
from engine.episodes.recovery import NO_SUCH_EPISODE, NO_SUCH_EXPECTATION
from engine.lanes import lane as lane_rules
from engine.lanes.effects import LaneEffects
from engine.lanes.lane import Cause, RequestedEpisode, Wanted
from engine.lanes.store import feed_cursor
from engine.runtime.consumer import WAIT_S, Queue, consume_batches
from engine.runtime.context import ActorContext
from engine.runtime.slots import Slots
from engine.triggers import debounce, schedule
from engine.triggers.admit import STRANGE_DELIVERIES_MAX, leave
from engine.triggers.evaluate import TriggerEvaluator
from engine.triggers.events import find_position, position_unseen, wait_position
from engine.triggers.rules import Gated, Part
from engine.triggers.timers import GOES_ON, RESTING_S, TimerRouter
from engine.waits.wait import is_answered, step_answered
from streams.clock import Clock
from streams.errors import Incompatible
from streams.model.commands import Start
from streams.model.events import EpisodeOpened
from streams.model.foreign_streams import ForeignStream
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.domain_events import EventFollower, Followed
from streams.ports.log import Recorded
from streams.ports.timers import Due
from streams.subjects import Stack
from streams.tracing import context_of, traceparent

ITEMS_MAX: Final = 1_000
"""Evaluated events that wait in memory for a decision, at most."""

LAG_MAX: Final = 1_000
"""Events in a row that opened nothing, before the cursor is stored. After a crash they are
evaluated again, with the same result. An event that a gate's state kept from opening is stored
at once: it might fire the next time."""

DUE_MAX: Final = 256
"""Due messages that are unacknowledged at a time."""

HAUL_MAX: Final = 500
"""Episodes that one decision places at most: their tickets, and the rest of the lane, fit in one
commit."""


OPENED_MAX: Final = LAG_MAX + ITEMS_MAX
"""Events past a cursor of which the last scheduler may have opened some: those that it passed
without storing the cursor, and those of its next decision. Later ones were only evaluated."""


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

    cursors: Mapping[str, int] = field(default_factory=dict)
    """How far the reader has come with it."""
    anew: Mapping[str, int] = field(default_factory=dict)
    """Cursors that begin, or begin again before where they are."""
    is_binding: bool = False
    """Whether it must not be evaluated again, because the state of a gate decided."""
    asked: Sequence[RequestedEpisode] = ()
    left: str = ""
    """The episode that has ended, or waits for something else; empty: none."""
    delivery: Delivery[Any] | None = None
    """To be acknowledged."""


@dataclass(kw_only=True)
class InputBatch:
    """What one decision is made on."""

    items: list[InputItem] = field(default_factory=list)

    @property
    def asked(self) -> list[RequestedEpisode]:
        """The requested episodes, in the order of their causes."""
        return [asked for item in self.items for asked in item.asked]

    @property
    def cursors(self) -> dict[str, int]:
        """The cursors after all items."""
        reached: dict[str, int] = {}
        for item in self.items:
            reached |= {**item.anew, **item.cursors}
        return reached

    @property
    def anew(self) -> dict[str, int]:
        """The cursors that begin, or begin again."""
        return {name: seq for item in self.items for name, seq in item.anew.items()}

    @property
    def is_binding(self) -> bool:
        """Whether its cursors must be stored before anything else is done."""
        return any(item.is_binding or item.anew for item in self.items)

    @property
    def left(self) -> list[str]:
        """The episodes that have ended, or wait for something else."""
        return [item.left for item in self.items if item.left]

    @property
    def deliveries(self) -> list[Delivery[Any]]:
        """What is to be acknowledged."""
        return [item.delivery for item in self.items if item.delivery is not None]


class Mailbox:
    """The queue between the readers and the scheduler's decisions."""

    def __init__(self) -> None:
        self.due_room = Slots(DUE_MAX)
        self._items: deque[InputItem] = deque()
        self._most = 0
        self._expected = 0
        self._unsettled = 0
        """Episodes that events asked for and that no decision has finished with."""
        self._news = asyncio.Event()
        self._moved = asyncio.Event()

    def put(self, items: Iterable[InputItem]) -> None:
        """Queue items, in order."""
        for item in items:
            self._items.append(item)
            self._unsettled += len(item.asked)
        self._news.set()

    def nudge(self) -> None:
        """Have the scheduler decide again, though nothing was queued."""
        self._news.set()

    async def take(self) -> InputBatch:
        """Wait for input, and return the oldest: items up to `HAUL_MAX` requested episodes."""
        await self._news.wait()
        batch, asked = InputBatch(), 0
        while self._items and (asked < HAUL_MAX):
            item = self._items.popleft()
            asked += len(item.asked)
            batch.items.append(item)
        if not self._items:
            self._news.clear()
        return batch

    def finish(self, batch: InputBatch) -> None:
        """Note that a decision has handled `batch`."""
        self._unsettled -= len(batch.asked)
        for _ in batch.deliveries:
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
        while (room := self.room - self._expected) <= 0:
            self._moved.clear()
            await self._moved.wait()
        return room

    def unanswered(self) -> list[Delivery[Any]]:
        """Return the deliveries that no decision has seen."""
        return InputBatch(items=list(self._items)).deliveries

    @property
    def room(self) -> int:
        """How many more episodes may be asked for; below 1, none."""
        return min(self._most - self._unsettled, ITEMS_MAX - len(self._items))


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """One stream, as far as the actor watches it."""

    queue: str
    """Its label in metrics: `events`, or the name of a stream."""
    cursors: Mapping[str, int]
    follow: Callable[[int], AbstractAsyncContextManager[EventFollower]]
    """Opens a follower just past a sequence."""
    newest: Callable[[], Awaitable[int]]
    """Returns the last sequence of the stream."""
    name_of: Callable[[Followed], str]
    """Returns the name of the cursor of an event."""
    fan_out: int
    """Most episodes that one event can ask for."""

    @property
    def after(self) -> int:
        """The sequence to begin after."""
        return min(self.cursors.values())

    def is_past(self, followed: Followed) -> bool:
        """Return whether an event was evaluated before."""
        return followed.seq <= self.cursors.get(self.name_of(followed), 0)

    def cursors_at(self, seq: int) -> dict[str, int]:
        """Return the cursors once everything up to `seq` is evaluated."""
        return dict.fromkeys(self.cursors, seq)


def own_track(context: ActorContext, cursors: Mapping[str, int]) -> Cursor | None:
    """Return what to follow of the stack's own events; None: the actor watches none."""
    domain_events, names = context.ports.domain_events, context.actor.event_names()
    expectations = context.actor.expectations.values()
    if not names:
        return None
    return Cursor(
        queue="events",
        cursors={name: cursors[name] for name in names},
        follow=lambda after: domain_events.follow(names, after=after),
        newest=domain_events.newest,
        name_of=partial(_name_of, context.ports.stack),
        fan_out=max(Counter(name for each in expectations for name in each.event_names).values()),
    )


def feed_track(context: ActorContext, foreign: ForeignStream, *, after: int) -> Cursor:
    """Return what to follow of a stream of others, from just past `after`."""
    name, expectations = feed_cursor(foreign), context.actor.expectations.values()
    return Cursor(
        queue=foreign.stream,
        cursors={name: after},
        follow=partial(_follow_feed, context, foreign),
        newest=partial(context.ports.domain_events.newest, foreign),
        name_of=partial(_the_only, name),
        fan_out=sum(
            foreign.stream in {one.stream for one in each.foreign_streams} for each in expectations
        ),
    )


async def missing_cursors(context: ActorContext, cursors: Mapping[str, int]) -> dict[str, int]:
    """Return where to begin with what the actor watches and `cursors` do not name.

    That is where its gates stopped if it had any, else the end of the stream, or where a feed says.
    A stream that does not exist yet may be missing.
    """
    missing: dict[str, int] = {}
    names = context.actor.event_names() - cursors.keys()
    if names:
        missing |= dict.fromkeys(
            sorted(names), await context.ports.domain_events.position(context.actor.id)
        )
    for foreign in context.actor.foreign_streams():
        if feed_cursor(foreign) not in cursors:
            position = await find_position(context, foreign)
            begins_after = position_unseen(foreign) if position is None else position
            if begins_after is not None:
                missing[feed_cursor(foreign)] = begins_after
    return missing


def _name_of(stack: Stack, followed: Followed) -> str:
    content = followed.content
    if isinstance(content, Unreadable):
        return stack.event_name_of(content.subject)
    return content.name


def _the_only(name: str, _: Followed) -> str:
    return name


def _follow_feed(
    context: ActorContext, foreign: ForeignStream, after: int
) -> AbstractAsyncContextManager[EventFollower]:
    return context.ports.domain_events.follow_feed(foreign, after=after)


@dataclass(frozen=True)
class ReplayWindow:
    """What the schedulers before this term may have done with the events of one cursor."""

    cursor: Cursor
    until: int
    """The end of its stream when this term began."""
    _read: Counter[str] = field(default_factory=Counter)
    """Name of a cursor → events past it."""

    def may_have_ruled_on(self, followed: Followed) -> bool:
        """Return whether an event was there before this term began."""
        return followed.seq <= self.until

    def may_have_opened(self, followed: Followed) -> bool:
        """Return whether an episode opened for an event may be on its way; it counts its calls."""
        # So it must be called for each event past its cursor, once and in order.
        name = self.cursor.name_of(followed)
        self._read[name] += 1
        return self._read[name] <= OPENED_MAX and self.may_have_ruled_on(followed)


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
            elif room > coming or not self._has_room_for(due.id):
                coming += 1
                self._outside.pop(due.id, None)
                inside.append(delivery)
            else:
                self._outside[due.id] = now_s + EXPECTED_S
                await leave(delivery)
        self._outside = {id_: until for id_, until in self._outside.items() if until > now_s}
        self.mailbox.expect(len(self._outside) + coming)
        return inside

    def shut(self) -> None:
        """Keep room only for those outside: the others have asked for theirs."""
        self.mailbox.expect(len(self._outside))

    def _has_room_for(self, id_: str) -> bool:
        return id_ in self._outside or len(self._outside) < OUTSIDE_MAX


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

    def __post_init__(self) -> None:
        self._context = self.evaluator.context
        self._router = TimerRouter(self.evaluator)
        self._expectations = self._context.actor.expectations
        self._backpressure = Backpressure(self.mailbox, self._context.clock)

    async def follow(self, cursor: Cursor) -> None:
        """Bring the events of `cursor`, for ever. Raises `Incompatible` if it cannot be."""
        labels = {"actor": self._context.actor.id, "queue": cursor.queue}
        before = ReplayWindow(cursor, until=await cursor.newest())
        async with cursor.follow(cursor.after) as follower:
            while True:
                most = self._share(await self.mailbox.wait_room(), cursor)
                batch = await follower.receive(most=most, wait_s=WAIT_S)
                new = [each for each in batch if not cursor.is_past(each)]
                self.mailbox.put(await self._rule_on(new, cursor, before))
                telemetry.backlog.set(follower.pending, labels)

    async def follow_feed(self, foreign: ForeignStream, *, after: int | None) -> None:
        """Bring a feed's events, for ever, once its stream exists; `after` None: no cursor yet."""
        context, position = self._context, await wait_position(self._context, foreign)
        labels = {"actor": context.actor.id, "stream": foreign.stream}
        is_another = after is not None and await context.ports.domain_events.newest(foreign) < after
        if is_another:
            log.warning("the stream is another one by now", **labels, begins_after=position)
        if after is None or is_another:
            self.mailbox.put([InputItem(anew={feed_cursor(foreign): position})])
            after = position
        try:
            await self.follow(feed_track(context, foreign, after=after))
        except Incompatible as error:
            # The rest of what wakes the actor goes on.
            log.warning("the stream cannot be followed", **labels, why=str(error))

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

    def _share(self, room: int, cursor: Cursor) -> int:
        """Return how many events may be read while there is room for so many episodes."""
        # Each event may ask for several episodes, and others read at the same time. At least one
        # may be read, or the last places could never be used: a lane may exceed its limit by what
        # one event each asks for.
        actor = self._context.actor
        readers = bool(actor.event_names()) + len(actor.foreign_streams())
        return max(1, min(room // (cursor.fan_out * readers), READ_MAX))

    async def _rule_on(
        self, batch: Sequence[Followed], cursor: Cursor, before: ReplayWindow
    ) -> list[InputItem]:
        parts = [await self._parts(each, before) for each in batch]
        outcomes = iter(await self._settle_all([part for each in parts for part in each]))
        items: list[InputItem] = []
        for followed, each in zip(batch, parts, strict=True):
            own = list(islice(outcomes, len(each)))
            cause, seq = followed.content, followed.seq
            asked = await self._asked(own, cause=cause, seq=seq, trace=followed.trace)
            is_binding = _is_binding(each, own)
            items.append(
                InputItem(cursors=cursor.cursors_at(seq), asked=asked, is_binding=is_binding)
            )
        return items

    async def _parts(self, followed: Followed, before: ReplayWindow) -> Sequence[Part]:
        may_arrive = before.may_have_opened(followed)
        if isinstance(followed.content, Unreadable):
            return [followed.content]
        is_repeat = before.may_have_ruled_on(followed)
        return await self.evaluator.rule(
            followed.content, is_repeat=is_repeat, has_arrived=not may_arrive
        )

    async def _settle_all(self, parts: Sequence[Part]) -> list[Outcome]:
        """Return what each part comes to. Those about the same subject are settled in order."""
        outcomes: list[Outcome] = [None] * len(parts)
        lines: defaultdict[tuple[str, str] | None, list[int]] = defaultdict(list)
        for index, part in enumerate(parts):
            lines[_subject_of(part)].append(index)
        room = asyncio.Semaphore(SETTLING_MAX)

        async def settle(line: Sequence[int]) -> None:
            async with room:
                for index in line:
                    outcomes[index] = await self.evaluator.evaluate(parts[index])

        await asyncio.gather(*(settle(line) for line in lines.values()))
        return outcomes

    async def _asked(
        self,
        outcomes: Sequence[Outcome],
        *,
        cause: Cause | Unreadable,
        seq: int,
        trace: str,
    ) -> list[RequestedEpisode]:
        asked: list[RequestedEpisode] = []
        for outcome in outcomes:
            if isinstance(outcome, Unreadable):
                await self.dead_letters.write_message(outcome, actor_id=self._context.actor.id)
            elif outcome is not None and not isinstance(cause, Unreadable):
                asked.append(self._asking(outcome, cause, seq=seq, trace=trace))
        return asked

    def _asking(
        self,
        opened: EpisodeOpened,
        cause: Cause,
        *,
        seq: int,
        trace: str,
        is_open: bool = False,
        newest: Recorded | None = None,
    ) -> RequestedEpisode:
        expectation = self._expectations[opened.expectation_id]
        with telemetry.span("gate", context_of(trace)):
            return RequestedEpisode(
                opened=opened,
                wanted=wanted_of(opened, expectation, newest=newest),
                cause=cause,
                seq=seq,
                trace=traceparent(),
                is_open=is_open,
            )

    async def _look_at(self, delivery: Delivery[Due | Unreadable]) -> InputItem | None:
        """Return what a due message comes to; None if it was handed back."""
        due = delivery.content
        match due:
            case Due(purpose=opening.LEFT):
                is_left = await self._is_left(due)
                return InputItem(left=due.key if is_left else "", delivery=delivery)
            case Due(purpose=opening.PLACE):
                return await self._place(due, delivery)
            case Due() if not self.takes_causes and due.purpose not in GOES_ON:
                await delivery.nak(delay_s=RESTING_S)
                return None
        parts = await self._due_parts(due, delivery)
        if parts is None:
            await leave(delivery)
            return None
        outcomes = await self._settle_all(parts)
        asked = await self._asked(outcomes, cause=due, seq=delivery.seq, trace=delivery.trace)
        return InputItem(asked=asked, delivery=delivery)

    async def _is_left(self, due: Due) -> bool:
        """Return whether an episode that left its place needs it no more."""
        # One that waited for something else may have its answer by now: then it keeps the place.
        if opening.FOR_NOW not in due.payload:
            return True
        newest = await self.effects.newest(due.key)
        return newest is None or lane_rules.needs_no_turn(newest)

    async def _place(self, due: Due, delivery: Delivery[Due | Unreadable]) -> InputItem | None:
        """Return what a request for a place comes to: an episode only if it waits for its turn."""
        newest = await self.effects.newest(due.key)
        opened = await self.effects.opening_of(newest)
        is_known = opened is None or opened.expectation_id in self._expectations
        if newest is not None and is_known:
            if opened is None:
                return InputItem(delivery=delivery)
            asked = self._asking(
                opened,
                due,
                seq=delivery.seq,
                trace=delivery.trace,
                is_open=True,
                newest=newest,
            )
            return InputItem(asked=[asked], delivery=delivery)
        if self._is_for_others(due):
            await leave(delivery)
            return None
        reason = NO_SUCH_EPISODE if newest is None else NO_SUCH_EXPECTATION
        start = Start(actor_id=self._context.actor.id, episode_id=due.key)
        detail = "it waits for its turn, and no node knows it"
        await self.dead_letters.write_command(start, seq=delivery.seq, reason=reason, detail=detail)
        return InputItem(delivery=delivery)

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


def _is_binding(parts: Sequence[Part], outcomes: Sequence[Outcome]) -> bool:
    """Return whether the state of a gate has kept one of `parts` from opening an episode."""
    settled = zip(parts, outcomes, strict=True)
    return any(isinstance(part, Gated) and outcome is None for part, outcome in settled)


def _subject_of(part: Part) -> tuple[str, str] | None:
    """Return the expectation and subject of a part whose outcome depends on a gate's state."""
    if not isinstance(part, Gated):
        return None
    expectation = part.expectation
    return expectation.name, entity_id(part.event.payload, expectation.subject_key)
