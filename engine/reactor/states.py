"""What is known of aggregates when a commit is followed: kept while in use, else read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import structlog

from engine.reactor import follow_up
from engine.reactor.follow_up import Effect, EpisodeState, OutputState
from engine.runtime.store import read_up_to
from engine.workflows.instance import INSTANCE_ENDED, Instance, fold_instance
from streams.clock import Clock
from streams.errors import BadName, Unavailable
from streams.layout import Kind
from streams.model.events import DeadLettered, EpisodeApprovalGiven, EpisodeBlocked, EpisodeOpened
from streams.ports.all import Ports
from streams.ports.log import Recorded

KEPT_MAX: Final = 4_096
"""Aggregates of a kind that are kept, the latest used. Measured: 1.2 KiB for an episode of a small
event."""

S = TypeVar("S")

log = structlog.get_logger("vigil.reactor")


class Kept(Generic[S]):
    """The latest used states of one kind of aggregate, by subject."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, S] = OrderedDict()

    def get(self, subject: str) -> S | None:
        """Return a state, if it is kept."""
        return self._kept.get(subject)

    def forget(self, subject: str) -> None:
        """Keep the state of a subject no longer; it is read again when it is needed."""
        self._kept.pop(subject, None)

    def keep(self, subject: str, state: S | None) -> None:
        """Keep a state; the one that was used the longest ago goes."""
        if state is None:
            return
        self._kept[subject] = state
        self._kept.move_to_end(subject)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)


@dataclass
class AggregateStates:
    """What follows from commits, in the order of a journal."""

    ports: Ports
    clock: Clock
    _episodes: Kept[EpisodeState] = field(default_factory=Kept)
    _openings: Kept[EpisodeOpened] = field(default_factory=Kept)
    """Of episodes whose states are not kept."""
    _outputs: Kept[OutputState] = field(default_factory=Kept)
    _instances: Kept[Instance] = field(default_factory=Kept)

    async def effects_of(self, record: Recorded) -> Sequence[Effect]:
        """Return what follows from a commit. Raises `Unavailable`; then ask again."""
        try:
            kind, key = self.ports.stack.aggregate_of(record.subject)
        except BadName as error:  # Somebody else has put it there.
            log.warning("a commit is no aggregate's", seq=record.seq, error=str(error))
            return ()
        if not record.commit.events:
            return ()
        match kind:
            case Kind.EPISODE:
                return await self._of_episode(record)
            case Kind.FINDING:
                cause = follow_up.cause_of(record)
                opened = await self._opened(cause) if cause else None
                return tuple(follow_up.of_finding(opened, record))
            case Kind.OUTPUT:
                return await self._of_output(record)
            case Kind.WORKFLOW:
                return await self._of_instance(record)
            case Kind.DEAD:
                return await self._of_dead_letter(record, key)
            case Kind.DEFINITION:
                return tuple(follow_up.of_definition(record))
            case Kind.ORDER:
                return tuple(follow_up.of_order(record, key=key))
            case _:
                return ()

    async def _of_episode(self, record: Recorded) -> Sequence[Effect]:
        state = self._episodes.get(record.subject)
        if state is None and not isinstance(record.commit.events[0], EpisodeOpened):
            for each in await self._before(record):
                state, _ = follow_up.of_episode(state, each)
        after, effects = follow_up.of_episode(state, record)
        self._episodes.keep(record.subject, after)
        if isinstance(record.commit.events[-1], EpisodeBlocked | EpisodeApprovalGiven):
            # It may wait for long, and there may be many.
            self._episodes.forget(record.subject)
        return effects

    async def _of_output(self, record: Recorded) -> Sequence[Effect]:
        state = self._outputs.get(record.subject)
        if state is None:
            for each in await self._before(record):
                state, _ = follow_up.of_output(state, each, None)
        proposer = follow_up.proposer_of(state, record)
        opened = await self._opened(proposer) if proposer else None
        after, effects = follow_up.of_output(state, record, opened)
        self._outputs.keep(record.subject, after)
        return effects

    async def _of_instance(self, record: Recorded) -> Sequence[Effect]:
        known = self._instances.get(record.subject)
        before = known or fold_instance(await self._before(record))
        after, events = follow_up.of_instance(before, record)
        self._instances.keep(record.subject, after)
        if after.phase in INSTANCE_ENDED:
            self._instances.forget(record.subject)
        return events

    async def _of_dead_letter(self, record: Recorded, key: str) -> Sequence[Effect]:
        letter: DeadLettered | None = None
        if not isinstance(record.commit.events[0], DeadLettered):
            for each in await self._before(record):
                letter, _ = follow_up.of_dead_letter(letter, each, key=key)
        _, effects = follow_up.of_dead_letter(letter, record, key=key)
        return effects

    async def _opened(self, episode_id: str) -> EpisodeOpened | None:
        subject = self.ports.stack.episode(episode_id)
        state = self._episodes.get(subject)
        opened = state.opened if state is not None else self._openings.get(subject)
        if opened is not None:
            return opened
        # Its state as it is now is none to keep: it may be ahead of the commits to come.
        for record in await self.ports.log.read(subject):
            state, _ = follow_up.of_episode(state, record)
        if state is None and await self.ports.log.last(subject) is None:
            log.warning("left out: its episode is gone", episode_id=episode_id)
            return None
        if state is None:  # Its opening came before what it has caused: a replica lags.
            raise Unavailable(subject, detail="its opening is not there yet")
        self._openings.keep(subject, state.opened)  # guard: other-aggregates-read-ignored
        return state.opened

    async def _before(self, record: Recorded) -> Sequence[Recorded]:
        """Return the commits of an aggregate before `record`."""
        records = await read_up_to(self.ports.log, self.clock, record)
        # guard: read-not-ahead-of-commits
        return [each for each in records if each.seq < record.seq]
