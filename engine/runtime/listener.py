"""Listens to what is said to an actor's episodes: rule on it, write it down, and call who goes on.

Who has decided something, or when something is due, cannot know whether there is room to run
episodes. So what is said has a queue of its own, and a small room of its own here, in which nothing
is run. An episode that can go on by what was said is called for, by a command in the queue of those
who run it: there it waits for a slot, on whichever node has one first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from engine import telemetry
from engine.runtime.attendant import Attendant, is_newest
from engine.runtime.cancellation import Cancellation
from engine.runtime.docket import Case, Docket, Incoming
from engine.runtime.hands import Hands
from engine.runtime.intake import taking
from engine.runtime.keeper import Keeper
from engine.runtime.output_crew import OutputCrew
from engine.runtime.output_desk import OutputDesk, is_about_outputs
from engine.runtime.slots import Slots
from engine.runtime.undertaker import Undertaker
from engine.runtime.waits import wait_first
from streams.commands import Cancel

ROOM_MAX: Final = 16
"""Commands of one actor that are ruled on at a time on one node. Each is a few requests to the
server and some milliseconds; a node that cannot reach it holds no more of them than this."""

WAIT_S: Final = 5.0
"""Longest silent wait for commands; only how often an idle listener looks up."""


@dataclass
class Listener:
    """The listener of one actor on one node."""

    crew: OutputCrew
    keeper: Keeper
    undertaker: Undertaker
    hands: Hands
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open."""
    _room: Slots = field(default_factory=lambda: Slots(ROOM_MAX))
    _docket: Docket = field(init=False)

    def __post_init__(self) -> None:
        self._docket = Docket(self.crew, self.undertaker, is_of_said=True)

    async def serve(self) -> None:
        """Rule on what is said for as long as the node may run the actor.

        Raises:
            Unavailable: the queue could not be opened.
        """
        labels = {"actor": self.crew.actor.id, "queue": "said"}
        opening = self.crew.ports.inbox.open_attending(self.crew.actor.id)
        room, withdrawn = self._room, self.crew.permits.runs.withdrawn
        async with taking(opening, stopping=withdrawn) as source:
            self.is_open.set()
            while not withdrawn.is_set():
                if not room.free:
                    # Whatever comes meanwhile is for others.
                    await source.pause()
                    await wait_first(room.wait_free(), withdrawn.wait())
                    continue
                for delivery in await source.receive(room=room.free, wait_s=WAIT_S):
                    room.take_late()
                    self.hands.start(self._hear(delivery))
                telemetry.backlog.set(source.pending, labels)

    async def _hear(self, delivery: Incoming) -> None:
        """Answer for what was said, unless the node may not any more: another may at once."""
        try:
            if not self.crew.permits.runs.is_given:
                return await delivery.nak()
            await self._docket.answer(delivery, self._follow)
        finally:
            self._room.give_back()

    async def _follow(self, case: Case) -> bool:
        if isinstance(case.command, Cancel):
            cancellation = Cancellation(case.crew, self.keeper, case.command, case.delivery)
            return await cancellation.carry_out(case.episode, case.records)
        if not await is_newest(case.crew.ports.log, case.records):
            return False
        if is_about_outputs(case.command, case.episode):
            desk = OutputDesk(case.crew)
            return await desk.follow(case.delivery, case.command, case.episode, case.records)
        attendant = Attendant(case.crew)
        return await attendant.attend(case.delivery, case.command, case.episode, case.records)
