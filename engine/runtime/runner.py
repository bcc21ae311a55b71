"""Runs an actor's episodes: pull what there is room for, read, and take each over.

All nodes of an actor share its queue. So a node without a free slot asks for nothing, and hands
back at once what still comes because it was asked for before the gate took the last slot.

The journal is read before the claim is made, to know which attempt it is for, and whether this
node can have the episode at all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from engine import placing, telemetry
from engine.blocking import is_answered, step_answered
from engine.episode import Episode
from engine.runtime.attendant import Attendant
from engine.runtime.docket import Case, Docket, Incoming
from engine.runtime.hands import Hands
from engine.runtime.intake import taking
from engine.runtime.keeper import Keeper
from engine.runtime.output_crew import OutputCrew
from engine.runtime.shift import Shift
from engine.runtime.undertaker import Undertaker
from engine.runtime.waits import wait_first
from engine.status import ENDED, Status
from streams.commands import Carry, Start
from streams.events import EpisodeResolved

WAIT_S: Final = 5.0
"""Longest silent wait for commands; only how often an idle runner looks up."""

SLOT_S: Final = 1.0
"""Longest wait of a command that was pulled for a slot that has been taken since."""


@dataclass
class Runner:
    """The runner of one actor on one node."""

    crew: OutputCrew
    keeper: Keeper
    undertaker: Undertaker
    hands: Hands
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open."""
    _docket: Docket = field(init=False)

    def __post_init__(self) -> None:
        self._docket = Docket(self.crew, self.undertaker, is_of_said=False)

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

    async def _run(self, delivery: Incoming, *, has_slot: bool) -> None:
        """Answer for a delivery in a slot of its own, or hand it back if none gets free soon.

        There was one when it was pulled; an event may have opened an episode in it since. A node
        that may not run it waits for none and begins nothing: another may have room at once.
        """
        slots, runs = self.crew.slots, self.crew.permits.runs
        if not has_slot and not await slots.take(within_s=SLOT_S, unless=runs.withdrawn):
            return await delivery.nak()
        try:
            await (self._docket.answer(delivery, self._follow) if runs.is_given else delivery.nak())
        finally:
            slots.give_back()

    async def _follow(self, case: Case) -> bool:
        """Have an episode run; return whether the call is answered for."""
        if isinstance(case.command, Carry):
            return await self._carry(case)
        if _has_gone_on(case):
            await case.delivery.ack()
            return True
        may_be_untold = is_answered(case.records[-1]) and not _is_told(case)
        if may_be_untold and not await Attendant(case.crew).tell_answer(case.episode, case.records):
            return False
        if self._has_no_turn(case):
            return await self._ask_for_place(case)
        if self._is_turned_away(case.episode):
            return False
        shift = Shift(case.crew, self.keeper, case.delivery.ack)
        careful = not _is_first_try(case)
        return await shift.take_over(case.episode, case.records, careful=careful)

    async def _carry(self, case: Case) -> bool:
        """Have outputs of an episode carried; return whether somebody does."""
        shift = Shift(case.crew, self.keeper, case.delivery.ack, called_at=case.delivery.at)
        if case.episode.status in ENDED:
            return await shift.settle(case.episode, case.records)
        return await shift.take_over(case.episode, case.records, careful=True)

    def _is_turned_away(self, episode: Episode) -> bool:
        """Return whether nobody has begun the episode, and a breaker of this node wants it gone."""
        opened = episode.opened
        return (
            opened is not None and _is_untouched(episode) and self.crew.breakers.turns_away(opened)
        )

    def _has_no_turn(self, case: Case) -> bool:
        """Return whether an episode can begin, or go on with its answer, and has no turn for it."""
        command = case.command
        is_admitted = isinstance(command, Start) and command.admitted
        if not self.crew.is_laned:
            return False
        if is_answered(case.records[-1]):
            return not (is_admitted and _is_told(case))
        return _is_untouched(case.episode) and isinstance(command, Start) and not is_admitted

    async def _ask_for_place(self, case: Case) -> bool:
        place = placing.place(case.command.actor_id, case.command.episode_id)
        id_ = f"place.{case.command.episode_id}.{case.delivery.seq}"
        await self.crew.ports.timers.send(place, id=id_)
        await case.delivery.ack()
        return True


def _is_told(case: Case) -> bool:
    """Return whether the world has heard of the answer that an episode can go on with."""
    command, step_no = case.command, step_answered(case.records[-1])
    return isinstance(command, Start) and command.answered_step == step_no


def _has_gone_on(case: Case) -> bool:
    """Return whether somebody has gone on, since, with the answer that a call is about.

    They have claimed the episode, or ended it. So nothing depends on this call any more.
    """
    command, newest = case.command, case.records[-1]
    step_no = command.answered_step if isinstance(command, Start) else 0
    return bool(step_no) and step_no != step_answered(newest) and _was_answered(case, step_no)


def _was_answered(case: Case, step_no: int) -> bool:
    events = (event for record in case.records for event in record.commit.events)
    answers = (each for each in events if isinstance(each, EpisodeResolved))
    return any(each.step_no == step_no for each in answers)


def _is_first_try(case: Case) -> bool:
    """Return whether no node can have begun with the episode: nothing can have crashed yet."""
    is_first = isinstance(case.command, Start) and case.delivery.deliveries == 1
    return is_first and _is_untouched(case.episode)


def _is_untouched(episode: Episode) -> bool:
    """Return whether no node has ever begun with the episode."""
    return episode.status is Status.QUEUED and episode.attempts == 0
