"""Does what a commit of a lane asks for: calls the admitted, cancels who lost, tells the world.

All of it is done before the next commit, so only what the newest one asks for can be missing after
a crash; and all of it has ids that come from the episode, so doing it again changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from engine import placing, publicity, telemetry
from engine.episode import Cancel, Status, decide, fold
from engine.lanes import Lane
from engine.publicity import PublicEvent
from engine.runtime.crew import Crew
from engine.runtime.herald import Herald
from streams.commands import Start
from streams.errors import Unavailable, UnreadableEvent, VersionConflict
from streams.events import EpisodeOpened, LaneMoved
from streams.log import Commit, Recorded

IN_FLIGHT_MAX: Final = 256
"""Things done at a time."""

TRIES_MAX: Final = 8
"""Most tries to cancel an episode that others write to at the same time. A node that begins it
wins once, and then it is not to be canceled any more."""

SHED: Final = "shed_oldest"
"""Error class of an episode that was canceled because others got its place in the lane."""

_T = TypeVar("_T")


@dataclass
class Usher:
    """Carries out the commits of one actor's lane, on one node."""

    crew: Crew
    traces: dict[str, str] = field(default_factory=dict)
    """Episode → `traceparent` of its cause, for those that wait since this node placed them."""

    async def carry_out(
        self, moved: LaneMoved, lane: Lane, *, version: int, openings: Mapping[str, EpisodeOpened]
    ) -> None:
        """Do what `moved` asks for.

        Args:
            moved: what has been committed.
            lane: as it is after that.
            version: of the commit.
            openings: those of the episodes that were placed or dropped, as far as they are known.

        Raises:
            Unavailable: some of it may not be done. Do it again.
        """
        called = (self.call(each) for each in moved.admitted)
        shed = (self.cancel(each, detail="others got its place") for each in moved.shed)
        news = [*_queued(moved, lane, openings, version), *_dropped(moved, openings, version)]
        await _all([*called, *shed, Herald(self.crew.ports.world).tell(news)])

    async def complete(self, newest: Recorded, lane: Lane) -> None:
        """Do what the newest commit of a lane asks for, whoever made it.

        Raises:
            Unavailable: as `carry_out`.
        """
        for event in newest.commit.events:
            if isinstance(event, LaneMoved):
                await self._complete(event, lane, version=newest.seq)

    async def call(self, episode_id: str, *, again: str = "") -> None:
        """Call a node to an episode whose turn has come; with `again` once more for that reason.

        Raises:
            Unavailable: call again.
        """
        start = Start(actor_id=self.crew.actor.id, episode_id=episode_id, admitted=True)
        id_ = f"turn.{episode_id}.{again}" if again else f"turn.{episode_id}"
        trace = self.traces.pop(episode_id, "")
        await self.crew.ports.inbox.send(start, id=id_, trace=trace)

    async def cancel(self, episode_id: str, *, detail: str) -> None:
        """Cancel an episode that lost its place, unless a node has begun it or it was not opened.

        Raises:
            Unavailable: the log is away, or others write to it again and again. Do it again.
        """
        subject = self.crew.ports.stack.episode(episode_id)
        for _ in range(TRIES_MAX):
            newest = await self.newest(episode_id)
            if newest is None or placing.untouched(newest) is None:
                return await self._tell_again(episode_id)
            event = decide(fold((newest,)), Cancel(error_class=SHED, error_detail=detail))
            now = self.crew.clock.now()
            commit = Commit(id=f"shed.{episode_id}", at=now, events=(event,))
            try:
                await self.crew.ports.log.append(subject, commit, after=newest.seq)
            except VersionConflict:
                continue
            labels = {"actor": self.crew.actor.id, "status": Status.CANCELED.value}
            telemetry.episodes_ended.add(1, labels)
            return await self._tell_again(episode_id)
        raise Unavailable(subject, detail="others write to it at the same time")

    async def newest(self, episode_id: str) -> Recorded | None:
        """Return an episode's newest commit; None if there is none that this version can read.

        Raises:
            Unavailable: the log is away.
        """
        try:
            return await self.crew.ports.log.last(self.crew.ports.stack.episode(episode_id))
        except UnreadableEvent:
            return None

    async def ended(self, episodes: Iterable[str]) -> list[str]:
        """Return those of `episodes` that have ended.

        Raises:
            Unavailable: the log is away.
        """
        ids = list(episodes)
        newest = await _all([self.newest(each) for each in ids])
        return [
            id_ for id_, last in zip(ids, newest, strict=True) if last and fold((last,)).finished
        ]

    async def _complete(self, moved: LaneMoved, lane: Lane, *, version: int) -> None:
        waiting = {ticket.episode_id for ticket in lane.waiting}
        placed = [each.episode_id for each in moved.placed if each.episode_id in waiting]
        newest = await _all([self.newest(each) for each in placed])
        found = (placing.untouched(each) for each in newest)
        openings = {each.episode_id: each for each in found if each is not None}
        await self.carry_out(moved, lane, version=version, openings=openings)
        # Of those that were dropped some may have been opened by whoever dispatched before.
        await _all([self.cancel(each, detail=why) for each, why in moved.dropped.items()])

    async def _tell_again(self, episode_id: str) -> None:
        """Tell whom it concerns that an episode was canceled, if that is how it ended."""
        try:
            records = await self.crew.ports.log.read(self.crew.ports.stack.episode(episode_id))
        except UnreadableEvent:
            return
        episode = fold(records)
        if episode.opened is None or episode.finished is None:
            return
        if episode.finished.error_class != SHED:
            return
        await self.crew.breakers.note(episode.opened, episode.finished)
        if publicity.is_public(episode.opened):
            end = publicity.ended(episode.opened, None, episode.finished, seq=records[-1].seq)
            await Herald(self.crew.ports.world).tell([end])


def _queued(
    moved: LaneMoved, lane: Lane, openings: Mapping[str, EpisodeOpened], version: int
) -> Iterator[PublicEvent]:
    placed = {ticket.episode_id for ticket in moved.placed}
    for position, ticket in enumerate(lane.waiting, start=1):
        opened = openings.get(ticket.episode_id)
        if ticket.episode_id in placed and opened is not None and publicity.is_public(opened):
            yield publicity.queued(opened, position=position, seq=version)


def _dropped(
    moved: LaneMoved, openings: Mapping[str, EpisodeOpened], version: int
) -> Iterator[PublicEvent]:
    for episode_id, why in moved.dropped.items():
        opened = openings.get(episode_id)
        if opened is not None and publicity.is_public(opened):
            yield publicity.dropped(opened, detail=why, seq=version)


async def _all(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return what each of `work` returns, done so many at a time as may be."""
    room = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def one(each: Awaitable[_T]) -> _T:
        async with room:
            return await each

    return await asyncio.gather(*(one(each) for each in work))
