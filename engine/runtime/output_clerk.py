"""Writes down what people want of one output: rule on its log → append → tell of it.

Whoever gets the command writes, at the version that was ruled on. What is refused has no effect and
is noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from engine.delivering import (
    answered,
    called_off,
    check_is_carried,
    check_is_said_since,
    expired,
    tried_again,
)
from engine.episode import Episode
from engine.errors import Refused
from engine.output import Output, is_own
from engine.output_publicity import CANCELED
from engine.runtime.crew import Crew
from engine.runtime.output_herald import OutputHerald
from engine.runtime.output_letters import note_retried
from engine.runtime.parcel import Parcel
from streams.commands import CancelOutput, Decide, RetryOutput
from streams.events import EpisodeOpened, OutputEvent
from streams.log import Recorded

log = structlog.get_logger("vigil.outputs")


@dataclass(frozen=True)
class OutputClerk:
    """Writes for one actor, on one node.

    Raises:
        Unavailable: from each of its methods. Let the command come again.
    """

    crew: Crew

    async def decide(self, command: Decide, episode: Episode, *, at: datetime) -> bool:
        """Write a decision down, and return whether there is one: this one, or that time is up.

        Args:
            command: what was decided.
            episode: whose output it is about.
            at: when, by the server's clock.
        """
        refusals: list[Refused] = []

        def ruled(output: Output) -> OutputEvent | None:
            refusals.clear()
            try:
                check_is_said_since(output, at=at)
                return answered(output, command, at=at)
            except Refused as refused:
                refusals.append(refused)
                is_meant = is_own(output, episode_id=command.episode_id)
                return expired(output, at=at) if is_meant else None

        parcel = self._parcel(command.output_key)
        is_written = await parcel.amend(ruled)
        _note(command, refusals)
        if is_written or not refusals:
            await self._herald(episode.opened).tell_decided(parcel)
        return is_written or not refusals

    async def retry(self, command: RetryOutput, newest: Recorded) -> bool:
        """Write down that an output is tried again, and return whether it is.

        Args:
            command: what a person wants.
            newest: commit of its episode.
        """
        refusals: list[Refused] = []
        before: list[Output] = []

        def ruled(output: Output) -> OutputEvent | None:
            refusals.clear()
            before[:] = [output]
            try:
                check_is_carried(newest)
                return tried_again(output, command, at=self.crew.clock.now())
            except Refused as refused:
                refusals.append(refused)
                return None

        if await self._parcel(command.output_key).amend(ruled):
            await note_retried(self.crew.ports, self.crew.clock, before[0], by=command.by)
        _note(command, refusals)
        return not refusals

    async def cancel(self, command: CancelOutput, episode: Episode, *, at: datetime) -> bool | None:
        """Write down that an output is canceled, and return whether it is.

        None: an attempt is under way, and nobody knows yet what comes of it.

        Args:
            command: what a person wants.
            episode: whose output it is about.
            at: when they said so, by the server's clock.
        """
        refusals: list[Refused] = []
        parcel = self._parcel(command.output_key)

        def ruled(output: Output) -> OutputEvent | None:
            refusals.clear()
            try:
                check_is_said_since(output, at=at)
                canceled = called_off(output, command)
            except Refused as refused:
                refusals.append(refused)
                return None
            return None if output.is_attempted else canceled

        await parcel.amend(ruled)
        if not refusals and parcel.output.is_attempted:
            return None
        _note(command, refusals)
        if not refusals:
            await self._herald(episode.opened).tell(parcel, frozenset({CANCELED}))
        return not refusals

    def _herald(self, opened: EpisodeOpened | None) -> OutputHerald:
        assert opened is not None, "an episode that was opened"
        return OutputHerald(self.crew.ports.world, opened)

    def _parcel(self, key: str) -> Parcel:
        return Parcel(self.crew.ports, self.crew.clock, key, pen=next(self.crew.pens))


def _note(command: CancelOutput | Decide | RetryOutput, refusals: Sequence[Refused]) -> None:
    kind, key = type(command).__name__.lower(), command.output_key
    for refused in refusals:
        log.info("refused", command=kind, output_key=key, by=command.by, why=str(refused))
