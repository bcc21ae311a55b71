"""Handles commands about outputs: approve, reject, retry, cancel; and their timers.

A command is decided on the output's log and appended at that version; a refused one is logged. Then
a node is called to the episode, to deliver. If a node has the episode at that moment, the command
is delivered again later, since that node may have read the output before. `OutputCheck` reminds
approvers and expires approvals without taking the episode over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import structlog

from engine.app.actions import Retries
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import events as episode_events
from engine.episodes.episode import ENDED, Episode, Status
from engine.episodes.open import call_by
from engine.errors import Refused
from engine.outputs.dead_letters import note_gone_on, write_failed
from engine.outputs.decide import (
    FailDelivery,
    Later,
    Move,
    TryDelivery,
    answered,
    called_off,
    check_is_carried,
    check_round,
    expired,
    has_expired,
    next_move,
    tried_again,
)
from engine.outputs.events import output_reminder
from engine.outputs.keys import wanted
from engine.outputs.output import Output, is_own
from engine.outputs.pool import AdapterPool
from engine.outputs.rate_limit import PLACE_S
from engine.outputs.store import OutputStore
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from engine.runtime.publish import EventPublisher
from engine.waits.deciders import with_groups
from streams.model.commands import Attend, CancelOutput, Carry, Command, Decide, RetryOutput
from streams.model.events import EpisodeOpened, OutputEvent
from streams.model.outputs import OutputStatus
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.log import Recorded
from streams.tracing import traceparent

LOOKS_IN_FLIGHT_MAX: Final = 16
"""Outputs of one episode that are looked at at a time."""


Incoming: TypeAlias = Delivery[Command | Unreadable]


log = structlog.get_logger("vigil.outputs")


@dataclass(frozen=True)
class OutputCommands:
    """Records commands about outputs, for one actor on one node."""

    context: ActorContext

    async def decide(self, command: Decide, *, at: datetime) -> bool:
        """Record a decision; return whether there is one: this one, or that time is up."""
        output_store = self._output_store(command.output_key)
        await output_store.read()
        pending = output_store.output.pending
        asked = None if pending is None else pending.terms
        command = await with_groups(self.context.ports, self.context.clock, command, asked)

        def ruled(output: Output) -> OutputEvent | None:
            check_round(output, command)  # guard: refused-decision-not-revived
            return answered(output, command, at=at)

        def late(output: Output) -> OutputEvent | None:
            is_meant = is_own(output, episode_id=command.episode_id)
            return expired(output, at=at) if is_meant else None

        decided = await self._amended(command, ruled, known=output_store)
        if decided is not None:
            # While others have to approve it as well, there is nothing to carry.
            return decided.output.status is not OutputStatus.AWAITING_APPROVAL
        return await self._output_store(command.output_key).amend(late)

    async def retry(self, command: RetryOutput, newest: Recorded) -> bool:
        """Record that an output is retried, and return whether it is."""

        def ruled(output: Output) -> OutputEvent | None:
            check_is_carried(newest)
            return tried_again(output, command, at=self.context.clock.now())

        output_store = await self._amended(command, ruled)
        if output_store is None:
            return False
        await note_gone_on(self.context.ports, self.context.clock, output_store.history)
        return True

    async def cancel(self, command: CancelOutput) -> bool | None:
        """Record a cancellation; return whether there is one; None: an attempt is running."""

        def ruled(output: Output) -> OutputEvent | None:
            check_round(output, command)  # guard: refused-cancel-not-revived
            canceled = called_off(output, command)
            return None if output.is_attempted else canceled  # guard: running-attempt-not-cancelled

        output_store = await self._amended(command, ruled)
        if output_store is None:
            return False
        return None if output_store.output.is_attempted else True

    async def _amended(
        self,
        command: CancelOutput | Decide | RetryOutput,
        ruled: Callable[[Output], OutputEvent | None],
        *,
        known: OutputStore | None = None,
    ) -> OutputStore | None:
        """Append what `ruled` returns, if anything, and return the output; None: it refuses.

        `known` is the output if it was just read.
        """
        output_store = known or self._output_store(command.output_key)
        try:
            await output_store.amend(ruled, is_known=known is not None)
        except Refused as refused:
            kind, key = type(command).__name__.lower(), command.output_key
            log.info("refused", command=kind, output_key=key, by=command.by, why=str(refused))
            return None
        return output_store

    def _output_store(self, key: str) -> OutputStore:
        return OutputStore(
            self.context.ports, self.context.clock, key, writer_id=next(self.context.writer_ids)
        )


@dataclass(frozen=True)
class OutputCheck:
    """Checks the outputs of an episode that no node has."""

    context: ActorContext
    adapters: AdapterPool
    opened: EpisodeOpened
    episode: Episode
    at: datetime
    """Now, by the server's clock: deadlines are compared with that, as decisions are."""

    async def finds_work(self) -> bool:
        """Remind people and expire what is due; return whether a node must take the episode."""
        keys = self._keys()
        found = await gather_bounded(self._check_key, keys, in_flight_max=LOOKS_IN_FLIGHT_MAX)
        times = [each for each in found if isinstance(each, datetime)]
        if times:  # guard: reminded-of-one-output
            # Also if there is work: that may wait for a slot, and nobody else is to.
            await call_by(self.context.ports, self.opened, min(times))
        if any(each is True for each in found):
            return True
        if times:
            self.adapters.line_up(keys, self.opened)  # guard: vain-comer-stays-in-line
        return False

    def _keys(self) -> Sequence[str]:
        deferred = self.episode.deferred
        if deferred is not None and self.episode.status is Status.DELIVERING:
            return deferred.pending
        return list(wanted(self.episode, self.opened))

    async def _check_key(self, key: str) -> datetime | bool | None:
        """Return whether something is to be done about an output now, or when it will be."""
        output_store = OutputStore(
            self.context.ports, self.context.clock, key, writer_id=next(self.context.writer_ids)
        )
        await output_store.amend(self._expired)
        await self._write_dead_letter(output_store)
        await self._remind(output_store)
        move = next_move(
            output_store.output,
            key,
            episode_id=self.opened.episode_id,
            attempts_max=Retries().attempts_max,
            at=max(self.at, self.context.clock.now()),
        )
        if isinstance(move, Later):
            return move.at
        away_s = self._stays_away_s(output_store, move)
        if away_s:  # guard: waiting-costs-no-commit
            return self.context.clock.now() + timedelta(seconds=away_s)
        if self.episode.status in ENDED:
            return isinstance(move, TryDelivery | FailDelivery)
        return True

    async def _remind(self, output_store: OutputStore) -> None:
        """Remind people of an output that waits for approval, if that is due."""
        output = output_store.output
        number = output.pending.reminder_no(at=self.at) if output.pending else 0
        if number and episode_events.is_public(self.opened):
            reminder = output_reminder(self.opened, output, number=number, seq=output_store.version)
            await EventPublisher(self.context.ports.domain_events).publish([reminder])

    def _expired(self, output: Output) -> OutputEvent | None:
        is_ours = is_own(output, episode_id=self.opened.episode_id)
        return expired(output, at=self.at) if is_ours else None

    def _stays_away_s(self, output_store: OutputStore, move: Move) -> float:
        """Return how long an attempt waits for its route's rate limit, in seconds."""
        # To take the episode over only to find that its route has no slot would cost two commits
        # each time.
        proposed = output_store.output.proposed
        pooled = self.adapters.of(proposed.adapter) if proposed else None
        is_open = pooled is None or pooled.throttle.is_open(output_store.key, within_s=PLACE_S)
        if pooled is None or is_open or not isinstance(move, TryDelivery):
            return 0.0
        return pooled.throttle.send_away_s(output_store.key)

    async def _write_dead_letter(self, output_store: OutputStore) -> None:
        """Write a dead letter for an output that was not approved in time."""
        proposal = output_store.proposal_of(self.opened.episode_id)
        # guard: unapproved-letter-after-end
        if proposal is not None and has_expired(proposal.output):
            await write_failed(
                DeadLetterWriter(self.context.ports, self.context.clock), proposal.output
            )


def is_about_outputs(command: Command, episode: Episode) -> bool:
    """Return whether a command is about outputs of an episode."""
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
class OutputHandler:
    """Handles commands about outputs for one actor, on one node."""

    context: ActorContext
    adapters: AdapterPool

    async def follow(
        self, delivery: Incoming, command: Command, episode: Episode, records: Sequence[Recorded]
    ) -> bool:
        """Carry out `command`; return whether it may be acknowledged."""
        commands = OutputCommands(self.context)
        has_effect: bool | None
        match command:
            case RetryOutput() if not _may_be_ruled_on(episode):
                return False
            case RetryOutput():
                has_effect = await commands.retry(command, records[-1])
            case CancelOutput():
                has_effect = await commands.cancel(command)
            case Decide():
                has_effect = await commands.decide(command, at=delivery.at)
            case _:
                has_effect = await self._check(episode, delivery).finds_work()
        if has_effect is None:
            return False
        if has_effect:
            return await self._have_carried(delivery, episode, records)
        await delivery.ack()
        return True

    def _check(self, episode: Episode, delivery: Incoming) -> OutputCheck:
        assert episode.opened is not None, "an episode that was opened"
        return OutputCheck(self.context, self.adapters, episode.opened, episode, at=delivery.at)

    async def _have_carried(
        self, delivery: Incoming, episode: Episode, records: Sequence[Recorded]
    ) -> bool:
        """Call a node to deliver what was decided; return whether the command is done."""
        newest = await self.context.ports.log.last(records[-1].subject)
        if newest is None or newest.seq != records[-1].seq:  # guard: decided-meanwhile-looked-at
            # The node that moved it may have read the output before this was decided.
            return False
        # Unless it converged, it carries its outputs once it has: they are looked at after that.
        if _is_carried_now(episode):
            assert episode.opened is not None, "an episode that was opened"
            actor, episode_id = episode.opened.actor_id, episode.opened.episode_id
            carry = Carry(actor_id=actor, episode_id=episode_id)
            # Of several calls while there is no slot one is enough: its node moves the episode,
            # unless that has ended.
            # guard: carry-calls-do-not-pile
            seq = delivery.seq if episode.status in ENDED else records[-1].seq
            id_ = f"carry.{episode_id}.{episode.status.value}.{seq}"
            await self.context.ports.commands.send(carry, id=id_, trace=traceparent())
        await delivery.ack()
        return True


def _is_carried_now(episode: Episode) -> bool:
    return episode.status in (Status.DELIVERING, Status.CONVERGING) or episode.status in ENDED


def _may_be_ruled_on(episode: Episode) -> bool:
    # guard: waiting-retry-answered
    return episode.status in (Status.DELIVERING, Status.BLOCKED) or episode.status in ENDED
