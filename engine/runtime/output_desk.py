"""Follows commands about outputs: rule on the output's log → append → have its episode go on.

Like an answer to an episode, a decision is appended by whoever gets it, at the version that it was
ruled on. What is then to be carried is carried by a node that has room for the episode, which is
called; if somebody has it at that moment, the call comes again, for they may have looked at the
output before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from engine.episode import Episode
from engine.runtime.output_clerk import OutputClerk
from engine.runtime.output_crew import OutputCrew
from engine.runtime.output_inspector import OutputInspector
from engine.status import ENDED, Status
from streams.commands import Attend, CancelOutput, Carry, Command, Decide, RetryOutput
from streams.delivery import Delivery, Unreadable
from streams.log import Recorded
from streams.tracing import traceparent

Incoming: TypeAlias = Delivery[Command | Unreadable]


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

    crew: OutputCrew

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
        clerk = OutputClerk(self.crew)
        has_effect: bool | None
        match command:
            case RetryOutput() if not _may_be_ruled_on(episode):
                return False
            case RetryOutput():
                has_effect = await clerk.retry(command, records[-1])
            case CancelOutput():
                has_effect = await clerk.cancel(command, episode, at=delivery.at)
            case Decide():
                has_effect = await clerk.decide(command, episode, at=delivery.at)
            case _:
                has_effect = await self._inspector(episode, delivery).finds_work()
        if has_effect is None:
            return False
        if has_effect:
            return await self._have_carried(delivery, episode, records)
        await delivery.ack()
        return True

    def _inspector(self, episode: Episode, delivery: Incoming) -> OutputInspector:
        assert episode.opened is not None, "an episode that was opened"
        return OutputInspector(self.crew, episode.opened, episode, at=delivery.at)

    async def _have_carried(
        self, delivery: Incoming, episode: Episode, records: Sequence[Recorded]
    ) -> bool:
        """Call who carries what was decided; return whether that is seen to."""
        newest = await self.crew.ports.log.last(records[-1].subject)
        if newest is None or newest.seq != records[-1].seq:
            # Whoever has moved it may have looked at the output before this was decided.
            return False
        # Unless it converged, it carries its outputs once it has: they are looked at after that.
        if _is_carried_now(episode):
            assert episode.opened is not None, "an episode that was opened"
            actor, episode_id = episode.opened.actor_id, episode.opened.episode_id
            carry = Carry(actor_id=actor, episode_id=episode_id)
            # Of several calls while there is no slot one is enough: whoever follows it moves the
            # episode, unless that has ended.
            seq = delivery.seq if episode.status in ENDED else records[-1].seq
            id_ = f"carry.{episode_id}.{episode.status.value}.{seq}"
            await self.crew.ports.inbox.send(carry, id=id_, trace=traceparent())
        await delivery.ack()
        return True


def _is_carried_now(episode: Episode) -> bool:
    """Return whether whoever has the episode next carries its outputs, and does nothing else."""
    return episode.status in (Status.DELIVERING, Status.CONVERGING) or episode.status in ENDED


def _may_be_ruled_on(episode: Episode) -> bool:
    """Return whether it can be said by now if an output is tried again."""
    return episode.status in (Status.DELIVERING, Status.BLOCKED) or episode.status in ENDED
