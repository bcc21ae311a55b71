"""Reads the episode that a command is about, and has the command followed or left to others.

Who is to have the episode is known before anything is done about it. A command that this node
cannot follow is handed back; one that no node has followed for long is kept as a dead letter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import placing, telemetry
from engine.backoff import backoff_s
from engine.episode import Episode, fold
from engine.obstacle import NO_SUCH_EPISODE, Obstacle, obstacle
from engine.runtime.cancellation import needs_expectation
from engine.runtime.editions import Hindered
from engine.runtime.output_crew import OutputCrew
from engine.runtime.undertaker import Undertaker
from engine.status import ENDED
from streams.commands import Attending, Cancel, Command
from streams.delivery import Delivery, Unreadable
from streams.errors import Unavailable, UnreadableEvent
from streams.log import Recorded
from streams.tracing import context_of

BUSY_S: Final = 0.05
"""First wait before a command comes again whose episode is not free; doubles each time."""

BUSY_MAX_S: Final = 10.0
"""Longest such wait."""

OBSTACLE_MAX_S: Final = 60.0
"""Longest wait before a command comes again whose episode this node cannot have."""

MISSING_DELIVERIES_MAX: Final = 12
"""Deliveries of a command before an episode that the journal does not hold counts as missing,
at least: about 2 minutes of waits. A replica may show an opening later than the command that
follows it, and an event that comes again may open an episode later than its recovery is called."""

MISSING_S: Final = 120.0
"""Age of such a command, at least: deliveries that ended for want of a slot are counted, too."""

OBSTACLE_DELIVERIES_MAX: Final = 70
"""Deliveries of a command that no node can follow before it is a dead letter, at least: about an
hour of waits, which is longer than a deploy takes to bring a node that can."""

OBSTACLE_S: Final = 3_600.0
"""Age of such a command, at least."""

WRONG_QUEUE: Final = Obstacle("wrong_queue", "it was not sent to the queue of its kind")
"""No engine sends such a command."""

NOTED_MAX: Final = 10_000
"""Episodes remembered because this node cannot have them. Forgetting them repeats a log line."""

Incoming: TypeAlias = Delivery[Command | Unreadable]

log = structlog.get_logger("vigil.runner")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command, and the episode that it is about."""

    crew: OutputCrew
    """Who is to have the episode: those with the actor as it was when that was opened."""
    delivery: Incoming
    command: Command
    episode: Episode
    """The fold of `records`."""
    records: Sequence[Recorded]


Follow: TypeAlias = Callable[[Case], Awaitable[bool]]
"""Does what a command says, and returns whether it is answered for."""


@dataclass
class Docket:
    """The commands to episodes of one actor, on one node."""

    crew: OutputCrew
    undertaker: Undertaker
    is_of_said: bool
    """Whether they are said to episodes; otherwise they call nodes to run them."""
    _noted: set[str] = field(default_factory=set)

    async def answer(self, delivery: Incoming, follow: Follow) -> None:
        """Answer for a delivery: have it followed, bury it, or hand it back."""
        content = delivery.content
        try:
            if isinstance(content, Unreadable):
                await self.undertaker.bury(content, actor_id=self.crew.actor.id)
                return await delivery.term(content.reason)
            with (
                bound_contextvars(episode_id=content.episode_id, actor=content.actor_id),
                telemetry.span("episode", context_of(delivery.trace)),
            ):
                await self._answer(delivery, content, follow)
        except Unavailable as error:
            log.warning("command handed back: the log is away", error=str(error))
            await hand_back(delivery)

    async def _answer(self, delivery: Incoming, command: Command, follow: Follow) -> None:
        if isinstance(command, Attending) is not self.is_of_said:
            return await self._bury(delivery, command, WRONG_QUEUE)
        try:
            case = await self._case(delivery, command)
        except Hindered as hindered:
            return await self._refuse(delivery, command, hindered.obstacle)
        if not await follow(case):
            await hand_back(delivery)
        return None

    async def _bury(self, delivery: Incoming, command: Command, why: Obstacle) -> None:
        """Leave a command to a person, who can have it sent again."""
        await self.undertaker.bury_command(
            command, seq=delivery.seq, reason=why.reason, detail=why.detail
        )
        await delivery.term(why.reason)

    async def _case(self, delivery: Incoming, command: Command) -> Case:
        """Return what a command is about.

        Raises:
            Hindered: this node cannot have the episode.
            Unavailable: the log is away.
        """
        subject = self.crew.ports.stack.episode(command.episode_id)
        try:
            records = await self.crew.ports.log.read(subject)
        except UnreadableEvent as error:
            why = f"this version cannot read it: {error}"
            raise Hindered(Obstacle("unreadable_journal", why)) from error
        episode = fold(records)
        # A node can end an episode that it could not run.
        is_mere_end = isinstance(command, Cancel) and not needs_expectation(episode)
        crew = self.crew if is_mere_end else await self._crew_for(episode, records)
        return Case(crew=crew, delivery=delivery, command=command, episode=episode, records=records)

    async def _crew_for(self, episode: Episode, records: Sequence[Recorded]) -> OutputCrew:
        opened, is_over = episode.opened, episode.status in ENDED
        crew = self.crew if opened is None or is_over else await self.crew.as_opened(opened)
        hindrance = obstacle(crew.actor, episode, records)
        if hindrance is not None:
            raise Hindered(hindrance)
        return crew

    async def _refuse(self, delivery: Incoming, command: Command, hindrance: Obstacle) -> None:
        """Leave a command to another node, or to a person if none has followed it for long."""
        if self._is_hopeless(delivery, hindrance):
            await self._give_place_back(command, seq=delivery.seq)
            await self._bury(delivery, command, hindrance)
        else:
            self._note(command.episode_id, hindrance)
            await hand_back(delivery, most_s=OBSTACLE_MAX_S)

    async def _give_place_back(self, command: Command, *, seq: int) -> None:
        """Let others have the turn of an episode that waits for a person now."""
        if self.crew.is_laned and not isinstance(command, Cancel):
            left = placing.left(command.actor_id, command.episode_id)
            # Another id than its end has: it may be tried again, and end, soon after.
            id_ = f"left.{command.episode_id}.{seq}"
            await self.crew.ports.timers.send(left, id=id_)

    def _is_hopeless(self, delivery: Incoming, hindrance: Obstacle) -> bool:
        """Return whether a command has been looked at in vain for long.

        It takes both: many deliveries may have ended for want of a slot, within seconds, and an
        old command may have waited for any node to be up.
        """
        is_missing = hindrance.reason == NO_SUCH_EPISODE
        most = MISSING_DELIVERIES_MAX if is_missing else OBSTACLE_DELIVERIES_MAX
        least_s = MISSING_S if is_missing else OBSTACLE_S
        age_s = (self.crew.clock.now() - delivery.at).total_seconds()
        return delivery.deliveries >= most and age_s >= least_s

    def _note(self, episode_id: str, hindrance: Obstacle) -> None:
        """Say once why this node cannot have the episode."""
        if episode_id in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted.add(episode_id)
        log.warning("command handed back", reason=hindrance.reason, why=hindrance.detail)


async def hand_back(delivery: Incoming, *, most_s: float = BUSY_MAX_S) -> None:
    """Let a command come again, later each time."""
    await delivery.nak(delay_s=backoff_s(delivery.deliveries, first_s=BUSY_S, most_s=most_s))
