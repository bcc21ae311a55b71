"""Cancels episodes: `CancelHandler` handles the command, `CancelWatcher` the key that speeds it up.

The command stays in the queue until the episode has ended: if the node that runs the episode dies,
the command is delivered again. The key in a bucket reaches every node at once, even one without a
free slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from engine.episodes import cancel
from engine.episodes.attempt import AttemptState, RunningEpisodes
from engine.episodes.episode import ENDED, Episode, Status
from engine.execution.parts import ActorParts
from engine.execution.run import new_attempt, run_episode
from engine.runtime.watch import follow
from streams.clock import SKEW_S
from streams.json import UNDECODABLE
from streams.keys import CANCELS, cancel_key, name_in
from streams.model.commands import Cancel, Command
from streams.ports.bucket import Bucket, BucketEntry
from streams.ports.delivery import Delivery, Unreadable
from streams.ports.log import Recorded
from streams.wire import codec

log = structlog.get_logger("vigil.execution")


@dataclass(frozen=True)
class CancelWatcher:
    """Watches the keys, for one node."""

    gates: Bucket
    running: RunningEpisodes

    async def follow(self) -> None:
        """Watch for ever, also while the node stops: what runs until then can be canceled."""
        await follow(self.gates.watch(under=CANCELS), self._hear)

    async def _hear(self, entries: Sequence[BucketEntry]) -> None:
        for entry in entries:
            self._look_at(entry)

    def _look_at(self, entry: BucketEntry) -> None:
        episode_id = name_in(entry.key)
        if entry.value is None:
            return self.running.forget(episode_id)
        command = _command_in(entry)
        if command is not None:
            self.running.wish(episode_id, cancel.end_of(command))
        return None


def _command_in(entry: BucketEntry) -> Cancel | None:
    """Return the command in an entry; None if it is unreadable: the queue has it, too."""
    try:
        command = codec.decode_command(entry.value or b"")
    except UNDECODABLE as error:  # guard: unreadable-wish-harmless
        log.warning("a wish to cancel is unreadable", key=entry.key, why=str(error))
        return None
    return command if isinstance(command, Cancel) else None


@dataclass
class CancelHandler:
    """One delivery of a cancel command. Only concluding an episode takes a slot."""

    parts: ActorParts
    command: Cancel
    delivery: Delivery[Command | Unreadable]
    _is_acknowledged: bool = False

    async def carry_out(self, episode: Episode, records: Sequence[Recorded]) -> bool:
        """Do what can be done now; return whether the command is acknowledged."""
        command, running = self.command, self.parts.running
        if self._is_over(episode, records[-1]):
            await self.ack()
            log.info("nothing to cancel any more", status=episode.status.value, by=command.by)
            return True
        if running.wish(command.episode_id, cancel.end_of(command)):
            return False  # guard: cancel-repeats-until-ended
        needs_slot, slots = needs_expectation(episode), self.parts.context.slots
        if needs_slot and not slots.try_take():  # guard: cancelled-findings-take-slot
            await self._tell_nodes()
            return False
        try:
            return await self._end(episode, records)
        finally:
            if needs_slot:
                slots.give_back()

    async def _end(self, episode: Episode, records: Sequence[Recorded]) -> bool:
        """End an episode that does not run here; its result is concluded all the same."""
        opened = episode.opened
        assert opened is not None, "an attempt at an episode that was never opened"
        # Where no node has begun, none of its code has run that a crash could be counted for.
        attempt = new_attempt(
            self.parts.context, opened, episode, self, claims_first=episode.attempts > 0
        )
        if await run_episode(self.parts, attempt, episode, records) is AttemptState.NOT_BEGUN:
            await self._tell_nodes()  # guard: owner-hears-cancel
        return self._is_acknowledged  # guard: unheard-cancel-handed-back

    def _is_over(self, episode: Episode, newest: Recorded) -> bool:
        """Return whether there is nothing to do, not even to inform breaker and lane after a crash.

        A redelivered command may have ended the episode before. Being the first delivery does not
        exclude another one: while this node was frozen, another node may have got the second and
        died. An episode that was never begun was ended without a claim, so nothing else calls for
        it.
        """
        is_first = self.delivery.deliveries == 1
        # guard: claimed-end-not-told
        is_unclaimed = episode.status is Status.CANCELED and not episode.attempts
        was_there = self.delivery.at <= newest.commit.at + timedelta(seconds=SKEW_S)
        # guard: stalled-cancel-tells-end
        is_informed = is_first and not (is_unclaimed and was_there)
        # guard: true-already-not-cancelled
        return _is_too_late(episode) or (episode.status in ENDED and is_informed)

    async def ack(self) -> None:
        """Acknowledge the command, and forget the cancellation."""
        self.parts.running.forget(self.command.episode_id)
        # guard: cancel-key-goes-when-done
        await self.parts.context.ports.gates.delete(cancel_key(self.command.episode_id))
        await self.delivery.ack()
        self._is_acknowledged = True

    async def _tell_nodes(self) -> None:
        """Set the key again for the node that runs the episode; it may have lapsed."""
        key, said = cancel_key(self.command.episode_id), codec.encode_command(self.command)
        await self.parts.context.ports.gates.put(key, said, ttl_s=cancel.KEY_TTL_S)


def _is_too_late(episode: Episode) -> bool:
    """Return whether what is left is beyond cancellation; undelivered outputs are not."""
    converged = episode.converged
    if episode.status is not Status.CONVERGING or converged is None:
        return False
    return not converged.outputs and not episode.outputs_left


def needs_expectation(episode: Episode) -> bool:
    """Return whether only a node that has the expectation can cancel `episode`.

    Findings are applied as the expectation says. An unopened episode may be of any.
    """
    converged = episode.converged
    is_found = converged is not None and bool(converged.findings) and episode.deferred is None
    is_over = episode.status in ENDED or _is_too_late(episode)
    # guard: findings-incapable-cancels-none
    return episode.opened is None or (is_found and not is_over)
