"""Follows commands about outputs: rule on the output's log → append → have its episode go on.

Like an answer to an episode, a decision is appended by whoever gets it, at the version that it was
ruled on. What is then to be carried is carried by whoever has the episode; if somebody has it at
this moment, the command comes again, for they may have looked at the output before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import structlog

from engine import publicity
from engine.delivering import (
    Attempt,
    Fail,
    Later,
    Move,
    answered,
    called_off,
    check_is_carried,
    expired,
    has_expired,
    next_move,
    tried_again,
)
from engine.episode import Episode
from engine.errors import Refused
from engine.output import Output, is_own
from engine.output_publicity import CANCELED, DECIDED, output_news, output_reminder
from engine.proposal import wanted
from engine.reminding import reminder_no
from engine.route import Retries
from engine.runtime.attendance import call_by
from engine.runtime.courier import PLACE_S
from engine.runtime.crew import Crew
from engine.runtime.herald import Herald
from engine.runtime.keeper import Keeper
from engine.runtime.parcel import Parcel
from engine.runtime.shift import Shift
from engine.runtime.undertaker import Undertaker
from engine.status import ENDED, Status
from streams.commands import Attend, CancelOutput, Command, Decide, RetryOutput
from streams.delivery import Delivery, Unreadable
from streams.errors import Unavailable, VersionConflict
from streams.events import EpisodeOpened, OutputEvent
from streams.log import START, Recorded
from streams.outputs import OutputStatus

WRITES_MAX: Final = 8
"""Most tries to write to an output that others write to at the same time."""

LOOKS_IN_FLIGHT_MAX: Final = 16
"""Outputs of one episode that are looked at, at a time."""

Incoming: TypeAlias = Delivery[Command | Unreadable]

log = structlog.get_logger("vigil.outputs")


def is_about_outputs(command: Command, episode: Episode) -> bool:
    """Return whether a command is about outputs of an episode, and not about itself."""
    match command:
        case RetryOutput() | CancelOutput():
            return True
        case Decide(output_key=key):
            return bool(key)
        case Attend():
            return episode.status is Status.DELIVERING or episode.status in ENDED
        case _:
            return False


@dataclass(frozen=True)
class OutputDesk:
    """Follows such commands for one actor, on one node."""

    crew: Crew
    keeper: Keeper

    async def follow(
        self, delivery: Incoming, command: Command, episode: Episode, records: Sequence[Recorded]
    ) -> bool:
        """Do what `command` asks; return whether it is answered for.

        Args:
            delivery: of the command; it is acknowledged here.
            command: about outputs.
            episode: the fold of `records`; it has been opened.
            records: its journal.

        Raises:
            Unavailable: the log is away. Let the command come again.
        """
        has_effect: bool | None
        match command:
            case RetryOutput() if not _may_be_ruled_on(episode):
                return False
            case RetryOutput():
                has_effect = await self._retry(command, records[-1])
            case CancelOutput():
                has_effect = await self._cancel(command, episode)
            case Decide():
                has_effect = await self._decide(command, episode, at=delivery.at)
            case _:
                has_effect = await self._is_due(episode, delivery)
        if has_effect is None:
            return False
        if has_effect:
            return await self._go_on(delivery, episode, records)
        await delivery.ack()
        return True

    async def _decide(self, command: Decide, episode: Episode, *, at: datetime) -> bool:
        """Write a decision down, and return whether there is one: this one, or that time is up."""
        refusals: list[Refused] = []

        def ruled(output: Output) -> OutputEvent | None:
            refusals.clear()
            try:
                return answered(output, command, at=at)
            except Refused as refused:
                refusals.append(refused)
                is_meant = is_own(output, episode_id=command.episode_id)
                return expired(output, at=at) if is_meant else None

        parcel = self._parcel(command.output_key)
        is_written = await self._write(parcel, ruled)
        _note(command, refusals)
        if is_written or not refusals:
            await self._tell_decided(episode, parcel)
        return is_written or not refusals

    async def _retry(self, command: RetryOutput, newest: Recorded) -> bool:
        """Write down that an output is tried again, and return whether it is."""
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

        if await self._write(self._parcel(command.output_key), ruled):
            undertaker = Undertaker(self.crew.ports, self.crew.clock)
            await undertaker.note_retried(before[0], by=command.by)
        _note(command, refusals)
        return not refusals

    async def _cancel(self, command: CancelOutput, episode: Episode) -> bool | None:
        """Write down that an output is canceled, and return whether it is.

        None: an attempt is under way, and nobody knows yet what comes of it.
        """
        refusals: list[Refused] = []
        parcel = self._parcel(command.output_key)

        def ruled(output: Output) -> OutputEvent | None:
            refusals.clear()
            try:
                canceled = called_off(output, command)
            except Refused as refused:
                refusals.append(refused)
                return None
            return None if output.is_attempted else canceled

        await self._write(parcel, ruled)
        if not refusals and parcel.output.is_attempted:
            return None
        _note(command, refusals)
        if not refusals:
            await self._tell(episode, parcel, frozenset({CANCELED}))
        return not refusals

    async def _write(self, parcel: Parcel, ruled: Callable[[Output], OutputEvent | None]) -> bool:
        """Append what a rule makes of an output, and return whether it makes anything of it."""
        for _ in range(WRITES_MAX):
            await parcel.read()
            event = ruled(parcel.output)
            if event is None:
                return False
            try:
                await parcel.append(event)
            except VersionConflict:
                continue
            return True
        raise Unavailable(f"output {parcel.key!r}", detail="others write to it at the same time")

    async def _is_due(self, episode: Episode, delivery: Incoming) -> bool:
        """Return whether the episode is to be gone on with; remind and expire what is due else.

        What is due later has a node called again.
        """
        assert episode.opened is not None, "an episode that was opened"
        room = asyncio.Semaphore(LOOKS_IN_FLIGHT_MAX)

        async def look(key: str) -> datetime | bool | None:
            async with room:
                return await self._look(episode, key, delivery)

        found = await asyncio.gather(*(look(key) for key in _keys(episode)))
        if any(each is True for each in found):
            return True
        times = [each for each in found if isinstance(each, datetime)]
        if times:
            await call_by(self.crew.ports, episode.opened, min(times))
        return False

    async def _look(self, episode: Episode, key: str, delivery: Incoming) -> datetime | bool | None:
        """Return whether something is to be done about an output now; or when it will be, if so.

        What people have until a time for is ruled on by the server's clock, as their decisions are.
        """
        assert episode.opened is not None, "an episode that was opened"
        parcel = self._parcel(key)
        episode_id = episode.opened.episode_id

        def ruled(output: Output) -> OutputEvent | None:
            is_ours = is_own(output, episode_id=episode_id)
            return expired(output, at=delivery.at) if is_ours else None

        await self._write(parcel, ruled)
        await self._bury(parcel, episode_id)
        await self._tell_decided(episode, parcel)
        await self._remind(episode.opened, parcel, at=delivery.at)
        move = next_move(
            parcel.output,
            key,
            episode_id=episode_id,
            attempts_max=Retries().attempts_max,
            at=max(delivery.at, self.crew.clock.now()),
        )
        if isinstance(move, Later):
            return move.at
        away_s = self._stays_away_s(parcel, move)
        if away_s:
            return self.crew.clock.now() + timedelta(seconds=away_s)
        if episode.status in ENDED:
            return isinstance(move, Attempt | Fail)
        return True

    def _stays_away_s(self, parcel: Parcel, move: Move) -> float:
        """Return how long an attempt is left for later because its route has no place, in seconds.

        To take the episode over only to find that out would cost it two commits each time.
        """
        proposed = parcel.output.proposed
        outlet = self.crew.outlets.of(proposed.adapter) if proposed else None
        is_open = outlet is None or outlet.throttle.is_open(within_s=PLACE_S)
        if outlet is None or is_open or not isinstance(move, Attempt):
            return 0.0
        return outlet.throttle.send_away_s(parcel.key)

    async def _bury(self, parcel: Parcel, episode_id: str) -> None:
        """Keep a dead letter of what nobody has approved in time: nobody may carry it any more."""
        proposal = parcel.proposal_of(episode_id)
        if proposal is not None and has_expired(proposal.output):
            await Undertaker(self.crew.ports, self.crew.clock).bury_output(proposal.output)

    async def _tell_decided(self, episode: Episode, parcel: Parcel) -> None:
        """Tell how an output was decided, if nothing has followed from that yet."""
        opened = episode.opened
        assert opened is not None, "an episode that was opened"
        is_ours = is_own(parcel.output, episode_id=opened.episode_id)
        if is_ours and not parcel.output.attempts:
            await self._tell(episode, parcel, DECIDED)

    async def _tell(self, episode: Episode, parcel: Parcel, names: Collection[str]) -> None:
        """Tell what of these names has happened to an output."""
        opened = episode.opened
        assert opened is not None, "an episode that was opened"
        proposal = parcel.proposal_of(opened.episode_id)
        if proposal is None or not publicity.is_public(opened):
            return
        news = output_news(opened, proposal.proposed, proposal.history, since=START)
        told = [each for each in news if each.name in names]
        if told:
            await Herald(self.crew.ports.world).tell(told)

    async def _remind(self, opened: EpisodeOpened, parcel: Parcel, *, at: datetime) -> None:
        output = parcel.output
        if output.status is not OutputStatus.AWAITING_APPROVAL or output.proposed is None:
            return
        approval, since = output.proposed.approval, output.asked_at
        if approval is None or since is None or not publicity.is_public(opened):
            return
        number = reminder_no(since, every_s=approval.remind_every_s, at=at)
        if number:
            news = output_reminder(opened, output, number=number, seq=parcel.version)
            await Herald(self.crew.ports.world).tell([news])

    async def _go_on(
        self, delivery: Incoming, episode: Episode, records: Sequence[Recorded]
    ) -> bool:
        """Have what was decided carried; return whether somebody does."""
        shift = Shift(self.crew, self.keeper, delivery.ack, called_at=delivery.at)
        if episode.status in ENDED:
            return await shift.settle(episode, records)
        if episode.status in (Status.DELIVERING, Status.CONVERGING):
            return await shift.take_over(episode, records, careful=True)
        # It carries its outputs once it has converged. Whoever has it looks at them after that.
        newest = await self.crew.ports.log.last(records[-1].subject)
        if newest is None or newest.seq != records[-1].seq:
            return False
        await delivery.ack()
        return True

    def _parcel(self, key: str) -> Parcel:
        return Parcel(self.crew.ports, self.crew.clock, key, pen=next(self.crew.pens))


def _may_be_ruled_on(episode: Episode) -> bool:
    """Return whether it can be said by now if an output is tried again."""
    return episode.status in (Status.DELIVERING, Status.BLOCKED) or episode.status in ENDED


def _keys(episode: Episode) -> Sequence[str]:
    """Return the keys of outputs of an episode that may not be settled."""
    if episode.deferred is not None and episode.status is Status.DELIVERING:
        return episode.deferred.pending
    assert episode.opened is not None, "an episode that was opened"
    return list(wanted(episode, episode.opened))


def _note(command: CancelOutput | Decide | RetryOutput, refusals: Sequence[Refused]) -> None:
    kind, key = type(command).__name__.lower(), command.output_key
    for refused in refusals:
        log.info("refused", command=kind, output_key=key, by=command.by, why=str(refused))
