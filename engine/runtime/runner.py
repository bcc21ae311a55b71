"""Runs an actor's episodes: pull what there is room for, read, and take each over.

All nodes of an actor share its queue. So a node without a free slot asks for nothing, and hands
back at once what still comes because it was asked for before the gate took the last slot.

The journal is read before the claim is made, to know which attempt it is for, and whether this
node can have the episode at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from structlog.contextvars import bound_contextvars

from engine import placing, telemetry
from engine.backoff import backoff_s
from engine.episode import (
    Episode,
    fold,
)
from engine.obstacle import NO_SUCH_EPISODE, Obstacle, obstacle
from engine.runtime.attendant import Attendant, is_for_attendant
from engine.runtime.cancellation import Cancellation, needs_expectation
from engine.runtime.crew import Crew
from engine.runtime.editions import Hindered
from engine.runtime.hands import Hands
from engine.runtime.intake import taking
from engine.runtime.keeper import Keeper
from engine.runtime.shift import Shift
from engine.runtime.undertaker import Undertaker
from engine.runtime.waits import wait_first
from engine.status import ENDED, Status
from streams.commands import Cancel, Command, Start
from streams.delivery import Delivery, Unreadable
from streams.errors import Unavailable, UnreadableEvent
from streams.log import Recorded
from streams.tracing import context_of

WAIT_S: Final = 5.0
"""Longest silent wait for commands; only how often an idle runner looks up."""

BUSY_S: Final = 0.05
"""First wait before a command comes again whose episode is not free; doubles each time."""

BUSY_MAX_S: Final = 10.0
"""Longest such wait."""

SLOT_S: Final = 1.0
"""Longest wait of a command that was pulled for a slot that has been taken since."""

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

NOTED_MAX: Final = 10_000
"""Episodes remembered because this node cannot have them. Forgetting them repeats a log line."""

log = structlog.get_logger("vigil.runner")


@dataclass
class Runner:
    """The runner of one actor on one node."""

    crew: Crew
    keeper: Keeper
    undertaker: Undertaker
    hands: Hands
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open."""
    _noted: set[str] = field(default_factory=set)

    async def serve(self) -> None:
        """Take the actor's commands for as long as the node may run it. What runs goes on.

        Raises:
            Unavailable: the actor's queue could not be opened.
        """
        labels = {"actor": self.crew.actor.id, "queue": "commands"}
        opening = self.crew.ports.inbox.open(self.crew.actor.id)
        slots, withdrawn = self.crew.slots, self.crew.permits.runs.withdrawn
        async with taking(opening, stopping=withdrawn) as source:
            self.is_open.set()
            while not withdrawn.is_set():
                if not slots.free:
                    # Whatever comes meanwhile is for others.
                    await source.pause()
                    await wait_first(slots.wait_free(), withdrawn.wait())
                    continue
                for delivery in await source.receive(room=slots.free, wait_s=WAIT_S):
                    has_slot = slots.try_take()
                    self.hands.start(self._run(delivery, has_slot=has_slot))
                telemetry.backlog.set(source.pending, labels)

    async def _run(self, delivery: Delivery[Command | Unreadable], *, has_slot: bool) -> None:
        """Answer for a delivery in a slot of its own, or hand it back if none gets free soon.

        There was one when it was pulled; an event may have opened an episode in it since. A node
        that may not run it waits for none and begins nothing: another may have room at once.
        """
        slots, runs = self.crew.slots, self.crew.permits.runs
        if not has_slot and not await slots.take(within_s=SLOT_S, unless=runs.withdrawn):
            return await delivery.nak()
        try:
            await (self._answer(delivery) if runs.is_given else delivery.nak())
        finally:
            slots.give_back()

    async def _answer(self, delivery: Delivery[Command | Unreadable]) -> None:
        content = delivery.content
        try:
            if isinstance(content, Unreadable):
                await self.undertaker.bury(content, actor_id=self.crew.actor.id)
                return await delivery.term(content.reason)
            with (
                bound_contextvars(episode_id=content.episode_id, actor=content.actor_id),
                telemetry.span("episode", context_of(delivery.trace)),
            ):
                await self._follow(delivery, content)
        except Unavailable as error:
            log.warning("command handed back: the log is away", error=str(error))
            await _hand_back(delivery)

    async def _follow(self, delivery: Delivery[Command | Unreadable], command: Command) -> None:
        subject = self.crew.ports.stack.episode(command.episode_id)
        try:
            records = await self.crew.ports.log.read(subject)
        except UnreadableEvent as error:
            unreadable = Obstacle("unreadable_journal", f"this version cannot read it: {error}")
            return await self._refuse(delivery, command, unreadable)
        episode = fold(records)
        if isinstance(command, Cancel) and not needs_expectation(episode):
            return await self._cancel(self.crew, delivery, command, episode, records)
        try:
            crew = await self._crew_for(episode, records)
        except Hindered as hindered:
            return await self._refuse(delivery, command, hindered.obstacle)
        if isinstance(command, Cancel):
            return await self._cancel(crew, delivery, command, episode, records)
        if is_for_attendant(command, records[-1]):
            return await self._attend(crew, delivery, command, episode, records)
        if self._has_no_turn(command, episode):
            return await self._ask_for_place(delivery, command)
        if self._is_turned_away(episode):
            return await _hand_back(delivery)
        careful = not _is_first_try(delivery, command, episode)
        shift = Shift(crew, self.keeper, delivery.ack)
        if not await shift.take_over(episode, records, careful=careful):
            await _hand_back(delivery)
        return None

    async def _crew_for(self, episode: Episode, records: Sequence[Recorded]) -> Crew:
        """Return who is to have an episode: those with the actor as it was when that was opened.

        Raises:
            Hindered: this node cannot have it.
            Unavailable: the log is away.
        """
        opened, is_over = episode.opened, episode.status in ENDED
        crew = self.crew if opened is None or is_over else await self.crew.as_opened(opened)
        hindrance = obstacle(crew.actor, episode, records)
        if hindrance is not None:
            raise Hindered(hindrance)
        return crew

    async def _cancel(
        self,
        crew: Crew,
        delivery: Delivery[Command | Unreadable],
        command: Cancel,
        episode: Episode,
        records: Sequence[Recorded],
    ) -> None:
        """End an episode. A node can do so that could not run it, and need not give it a turn."""
        cancellation = Cancellation(crew, self.keeper, command, delivery)
        if not await cancellation.carry_out(episode, records):
            await _hand_back(delivery)

    async def _attend(
        self,
        crew: Crew,
        delivery: Delivery[Command | Unreadable],
        command: Command,
        episode: Episode,
        records: Sequence[Recorded],
    ) -> None:
        """Follow a command about an episode that waits, or did."""
        attendant = Attendant(crew, self.keeper)
        if not await attendant.attend(delivery, command, episode, records):
            await _hand_back(delivery)

    def _is_turned_away(self, episode: Episode) -> bool:
        """Return whether nobody has begun the episode, and a breaker of this node wants it gone."""
        opened = episode.opened
        return (
            opened is not None and _is_untouched(episode) and self.crew.breakers.turns_away(opened)
        )

    def _has_no_turn(self, command: Command, episode: Episode) -> bool:
        """Return whether nobody has begun the episode, and its turn has not come."""
        is_wish = isinstance(command, Start) and not command.admitted
        return self.crew.is_laned and _is_untouched(episode) and is_wish

    async def _ask_for_place(
        self, delivery: Delivery[Command | Unreadable], command: Command
    ) -> None:
        place = placing.place(command.actor_id, command.episode_id)
        id_ = f"place.{command.episode_id}.{delivery.seq}"
        await self.crew.ports.timers.send(place, id=id_)
        await delivery.ack()

    async def _refuse(
        self, delivery: Delivery[Command | Unreadable], command: Command, hindrance: Obstacle
    ) -> None:
        """Leave a command to another node, or to a person if none has followed it for long."""
        if self._is_hopeless(delivery, hindrance):
            await self.undertaker.bury_command(
                command, seq=delivery.seq, reason=hindrance.reason, detail=hindrance.detail
            )
            await self._give_place_back(command, seq=delivery.seq)
            await delivery.term(hindrance.reason)
        else:
            self._note(command.episode_id, hindrance)
            await _hand_back(delivery, most_s=OBSTACLE_MAX_S)

    async def _give_place_back(self, command: Command, *, seq: int) -> None:
        """Let others have the turn of an episode that waits for a person now."""
        if self.crew.is_laned and not isinstance(command, Cancel):
            left = placing.left(command.actor_id, command.episode_id)
            # Another id than its end has: it may be tried again, and end, soon after.
            id_ = f"left.{command.episode_id}.{seq}"
            await self.crew.ports.timers.send(left, id=id_)

    def _is_hopeless(self, delivery: Delivery[Command | Unreadable], hindrance: Obstacle) -> bool:
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


async def _hand_back(
    delivery: Delivery[Command | Unreadable], *, most_s: float = BUSY_MAX_S
) -> None:
    """Let the command come again, later each time."""
    await delivery.nak(delay_s=backoff_s(delivery.deliveries, first_s=BUSY_S, most_s=most_s))


def _is_first_try(
    delivery: Delivery[Command | Unreadable], command: Command, episode: Episode
) -> bool:
    """Return whether no node can have begun with the episode: nothing can have crashed yet."""
    return _is_untouched(episode) and isinstance(command, Start) and delivery.deliveries == 1


def _is_untouched(episode: Episode) -> bool:
    """Return whether no node has ever begun with the episode."""
    return episode.status is Status.QUEUED and episode.attempts == 0
