"""Carries out a commit of a lane: starts admitted episodes, cancels dropped ones, publishes events.

All of it is done before the next commit, and is safe to repeat: after a crash only the newest
commit's effects can be missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from engine import telemetry
from engine.children import rules as children
from engine.episodes import events as episode_events
from engine.episodes import open as opening
from engine.episodes.breakers.store import Breakers
from engine.episodes.episode import CancelEpisode, Status, decide, expiry, fold
from engine.episodes.service_level import labels_of, outcome_of, times_of
from engine.lanes import lane as lane_rules
from engine.lanes.lane import Lane
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from engine.runtime.publish import EventPublisher, PublicEvent
from engine.runtime.store import Store, only_newest, read_up_to
from engine.waits.wait import is_answered
from streams.errors import UnreadableEvent
from streams.model.commands import Start
from streams.model.events import EpisodeFinished, EpisodeOpened, LaneMoved
from streams.model.lanes import Ticket
from streams.ports.log import Recorded

IN_FLIGHT_MAX: Final = 256
"""Effects in flight at a time."""

SHED: Final = "shed_oldest"
"""Error class of an episode that was canceled because others got its place in the lane."""

_T = TypeVar("_T")


def no_place(why: str) -> CancelEpisode:
    """Return the cancellation of an episode that gets no place in the lane, or loses it."""
    return CancelEpisode(error_class=SHED, error_detail=why)


NO_PLACE: Final = no_place("others got its place")


@dataclass
class LaneEffects:
    """Carries out the commits of one actor's lane, on one node."""

    context: ActorContext
    breakers: Breakers
    traces: dict[str, str] = field(default_factory=dict)
    """Episode → `traceparent` of its cause, for those that wait since this node placed them."""

    async def carry_out(
        self, moved: LaneMoved, lane: Lane, *, version: int, openings: Mapping[str, EpisodeOpened]
    ) -> None:
        """Do what the committed `moved` asks for; `lane` is as it is after that."""
        resumes = {each.episode_id: each for each in lane.admitted if each.resumes}
        called = (self._called(each, resumes.get(each)) for each in moved.admitted)
        shed = (partial(self.cancel, each, NO_PLACE) for each in moved.shed)
        public_events = list(_queued(moved, lane, openings, version))
        told = partial(EventPublisher(self.context.ports.domain_events).publish, public_events)
        todo: list[Callable[[], Awaitable[None]]] = [*called, *shed, told]
        await _all(todo)
        for each in (*moved.shed, *moved.dropped, *moved.left):  # guard: left-not-kept
            self.traces.pop(each, None)

    async def publish_dropped(
        self, dropped: Mapping[str, str], openings: Mapping[str, EpisodeOpened], *, version: int
    ) -> None:
        """Publish which episodes get no place, before the lane records it."""
        # An episode that was never opened leaves no other trace: the next node could not publish
        # it.
        public_events = [
            episode_events.dropped(opened, detail=why, seq=version)
            for opened, why in ((openings[each], why) for each, why in dropped.items())
            if episode_events.is_public(opened)
        ]
        await EventPublisher(self.context.ports.domain_events).publish(public_events)

    async def expire(self, episodes: Iterable[str]) -> list[str]:
        """Cancel those of `episodes` whose `start_by` is over; return those that need no turn."""
        ids, now = list(episodes), self.context.clock.now()
        newest = await _all([partial(self.newest, each) for each in ids])
        cancels = (expiry(fold((last,)), at=now) if last else None for last in newest)
        found = zip(ids, cancels, strict=True)
        await _all([partial(self.cancel, id_, cancel) for id_, cancel in found if cancel])
        return await self.gone(ids)

    async def complete(self, newest: Recorded, lane: Lane) -> None:
        """Do what the newest commit of a lane asks for, though another node may have made it."""
        for event in newest.commit.events:
            if isinstance(event, LaneMoved):
                await self._complete(event, lane, version=newest.seq)

    async def call(self, episode_id: str, *, again: str = "", answered_step: int = 0) -> None:
        """Send a `Start` for an episode whose turn has come; `again` says why it is repeated."""
        # `answered_step` tells it from a redelivered call for an earlier turn.
        start = Start(
            actor_id=self.context.actor.id,
            episode_id=episode_id,
            admitted=True,
            answered_step=answered_step,
        )
        id_ = f"turn.{episode_id}.{again}" if again else f"turn.{episode_id}"
        trace = self.traces.pop(episode_id, "")
        await self.context.ports.commands.send(start, id=id_, trace=trace)

    async def cancel(self, episode_id: str, cancel: CancelEpisode) -> None:
        """Cancel an episode that has no place, unless it has begun or was never opened."""

        def rule(newest: Recorded | None, at: datetime) -> Sequence[EpisodeFinished]:
            if newest is None or opening.untouched(newest) is None:
                return ()
            event = decide(fold((newest,)), cancel)
            assert isinstance(event, EpisodeFinished), "a cancel of what nobody began is its end"
            outcome = outcome_of(times_of((newest,)), event.status, at=at)
            return (replace(event, service_level=outcome),)  # guard: level-of-lane-cancelled

        ports = self.context.ports
        store = Store[Recorded | None, EpisodeFinished](
            ports.log, self.context.clock, _newest_of, after=only_newest
        )
        id_ = f"{cancel.error_class}.{episode_id}"
        try:
            changed = await store.change(ports.stack.episode(episode_id), rule, id=id_)
        except UnreadableEvent:
            return None
        opened = opening.untouched(changed.before.state)
        if opened is None or not changed.events:
            return await self._inform_again(changed.after.state, cancel)
        labels = {"actor": self.context.actor.id, "mode": opened.mode.value}
        telemetry.episodes_ended.add(1, {**labels, "status": Status.CANCELED.value})
        (finished,) = changed.events
        if finished.service_level is not None:
            telemetry.service_levels.add(1, labels_of(opened, finished.service_level))
        return await self.breakers.record_end(opened, finished, seq=changed.after.version)

    async def tell_parent(self, dropped: EpisodeOpened, why: str) -> None:
        """End a child that gets no place and is not open: its parent waits for its end."""
        if children.parent_of(dropped) is not None:  # guard: dropped-child-told
            life = children.unopened(dropped, SHED, why)
            await opening.end_unopened(self.context.ports, life, at=self.context.clock.now())

    async def newest(self, episode_id: str) -> Recorded | None:
        """Return an episode's newest commit; None if there is none that this version can read."""
        try:
            return await self.context.ports.log.last(self.context.ports.stack.episode(episode_id))
        except UnreadableEvent:
            return None

    async def is_missing(self, episode_id: str) -> bool:
        """Return whether an episode was never opened."""
        try:
            last = await self.context.ports.log.last(self.context.ports.stack.episode(episode_id))
        except UnreadableEvent:
            return False
        return last is None

    async def opening_of(self, newest: Recorded | None) -> EpisodeOpened | None:
        """Return the opening of an episode that waits for its turn; None: it does not wait."""
        if newest is None or not is_answered(newest):
            return opening.untouched(newest)
        records = await read_up_to(self.context.ports.log, self.context.clock, newest)
        return fold(records).opened

    async def gone(self, episodes: Iterable[str]) -> list[str]:
        """Return those of `episodes` that need no turn: they have ended, or wait for something."""
        ids = list(episodes)
        newest = await _all([partial(self.newest, each) for each in ids])
        return [
            id_ for id_, last in zip(ids, newest, strict=True) if lane_rules.needs_no_turn(last)
        ]

    def _called(self, episode_id: str, ticket: Ticket | None) -> Callable[[], Awaitable[None]]:
        if ticket is None:
            return partial(self.call, episode_id)
        # guard: second-call-is-another
        again, step = f"again.{ticket.number}", ticket.answered_step
        return partial(self.call, episode_id, again=again, answered_step=step)

    async def _complete(self, moved: LaneMoved, lane: Lane, *, version: int) -> None:
        # What has begun since needs no `Start`, and is not published as waiting.
        placed = (ticket.episode_id for ticket in moved.placed)
        ids = list(dict.fromkeys((*placed, *moved.admitted)))
        newest = await _all([partial(self.newest, each) for each in ids])
        found = (opening.untouched(each) for each in newest)
        openings = {each.episode_id: each for each in found if each is not None}
        waiting = {id_ for id_, last in zip(ids, newest, strict=True) if lane_rules.waits(last)}
        admitted = tuple(each for each in moved.admitted if each in waiting)
        todo = replace(moved, admitted=admitted)
        await self.carry_out(todo, lane, version=version, openings=openings)
        # The last scheduler may have opened some of those that were dropped.
        dropped = ((each, no_place(why)) for each, why in moved.dropped.items())
        await _all([partial(self.cancel, each, cancel) for each, cancel in dropped])

    async def _inform_again(self, newest: Recorded | None, cancel: CancelEpisode) -> None:
        """Inform the breaker again if `newest` says that an episode was canceled so."""
        # A replica that lags may lack the end, which is `newest`. It has the opening.
        finished = None if newest is None else fold((newest,)).finished
        if newest is None or finished is None or finished.error_class != cancel.error_class:
            return
        try:
            opened = fold(await self.context.ports.log.read(newest.subject)).opened
        except UnreadableEvent:
            return
        if opened is not None:
            await self.breakers.record_end(opened, finished, seq=newest.seq)


def _newest_of(records: Sequence[Recorded]) -> Recorded | None:
    return records[-1] if records else None


def _queued(
    moved: LaneMoved, lane: Lane, openings: Mapping[str, EpisodeOpened], version: int
) -> Iterator[PublicEvent]:
    placed = {ticket.episode_id for ticket in moved.placed if not ticket.resumes}
    for position, ticket in enumerate(lane.waiting, start=1):
        opened = openings.get(ticket.episode_id)
        if ticket.episode_id in placed and opened is not None and episode_events.is_public(opened):
            yield episode_events.queued(opened, position=position, seq=version)


async def _all(calls: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
    return await gather_bounded(lambda call: call(), calls, in_flight_max=IN_FLIGHT_MAX)
