"""Settles dead letters: as a person decides, or because what one is about was gone on with.

To requeue a letter is: read → rule → act → append. What is done has ids that come from the
letter, so a crash in between is completed by requeuing it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine import dead, sweep
from engine.delivering import check_is_carried, tried_again
from engine.episode import Episode, fold
from engine.errors import Refused, Rejected
from engine.output import fold as fold_output
from engine.runtime.opener import open_episode
from engine.runtime.undertaker import settle
from engine.workflows.history import fold as fold_instance
from engine.workflows.sweep import require_there
from streams.clock import Clock
from streams.commands import RetryOutput, WorkflowCommand
from streams.errors import UnreadableEvent
from streams.events import DeadDiscarded, DeadRequeued
from streams.layout import Stream
from streams.log import START
from streams.ports import Ports


@dataclass(frozen=True)
class Settler:
    """Settles dead letters, for one person or one node."""

    ports: Ports
    clock: Clock

    async def requeue(self, letter_key: str, *, by: str) -> DeadRequeued:
        """Have a letter tried again, and return what was done.

        An event is published again, as it came; for an episode that was given up, another one is
        opened; for a command, a node is called to its episode again; an output is tried again; a
        command to an instance of a workflow is put to it again.

        Args:
            letter_key: as `Stack.aggregate_of` gives it.
            by: who decided.

        Raises:
            Rejected: there is no such letter, it is settled, or it cannot be tried again.
            BadName: `letter_key` cannot be a letter's.
            Unavailable: the log is away. Requeue it again: that completes what was begun.
        """
        subject, letter, version = await self._read(letter_key)
        match dead.remedy(letter, stack=self.ports.stack):
            case dead.Republish(seq=seq):
                requeued = await self._republish(seq, letter_key=letter_key, by=by)
            case dead.Reopen(episode_id=episode_id):
                requeued = await self._reopen(episode_id, by=by)
            case dead.Recall() as recall:
                requeued = await self._recall(recall, letter_key=letter_key, by=by)
            case dead.Redeliver() as redeliver:
                requeued = await self._redeliver(redeliver, letter_key=letter_key, by=by)
            case dead.Resend(command=command):
                requeued = await self._resend(command, letter_key=letter_key, by=by)
        await settle(self.ports, self.clock, subject, letter, requeued, after=version)
        return requeued

    async def discard(self, letter_key: str, *, by: str, reason: str) -> DeadDiscarded:
        """Note that a letter is of no use, and return what was noted.

        Args:
            letter_key: as `Stack.aggregate_of` gives it.
            by: who decided.
            reason: why, in words.

        Raises:
            Rejected: there is no such letter, or it is settled.
            BadName: `letter_key` cannot be a letter's.
            Unavailable: the log is away. It may have been noted.
        """
        subject, letter, version = await self._read(letter_key)
        discarded = DeadDiscarded(by=by, reason=reason)
        await settle(self.ports, self.clock, subject, letter, discarded, after=version)
        return discarded

    async def _read(self, letter_key: str) -> tuple[str, dead.Letter, int]:
        subject = self.ports.stack.dead_letter(letter_key)
        records = await self.ports.log.read(subject)
        return subject, dead.fold(records), records[-1].seq if records else START

    async def _republish(self, seq: int, *, letter_key: str, by: str) -> DeadRequeued:
        event_seq = await self.ports.world.republish(seq, id=f"requeue.{letter_key}")
        if event_seq is None:
            stream = self.ports.stack.stream(Stream.EVENTS)
            raise Rejected(f"{stream} does not hold the message at {seq} any more; discard it")
        return DeadRequeued(by=by, event_seq=event_seq)

    async def _reopen(self, episode_id: str, *, by: str) -> DeadRequeued:
        opened = dead.reopened(await self._episode(episode_id), stack=self.ports.stack)
        await open_episode(self.ports, opened, at=self.clock.now())
        return DeadRequeued(by=by, episode_id=opened.episode_id)

    async def _recall(self, recall: dead.Recall, *, letter_key: str, by: str) -> DeadRequeued:
        episode = dead.recalled(await self._episode(recall.episode_id))
        command = recall.command or sweep.call_for(episode)
        await self.ports.inbox.send(command, id=f"recall.{letter_key}")
        return DeadRequeued(by=by, episode_id=recall.episode_id)

    async def _redeliver(
        self, redeliver: dead.Redeliver, *, letter_key: str, by: str
    ) -> DeadRequeued:
        id_ = f"requeue.{letter_key}"
        retry = RetryOutput(
            actor_id=redeliver.actor_id,
            episode_id=redeliver.episode_id,
            id=id_,
            output_key=redeliver.output_key,
            by=by,
        )
        failed = fold_output(await self.ports.log.read(self.ports.stack.output(retry.output_key)))
        try:
            tried_again(failed, retry, at=self.clock.now())
            check_is_carried(await self.ports.log.last(self.ports.stack.episode(retry.episode_id)))
        except Refused as error:
            raise Rejected(f"{error}; discard it") from error
        await self.ports.inbox.send(retry, id=id_)
        return DeadRequeued(by=by, episode_id=redeliver.episode_id)

    async def _resend(self, command: WorkflowCommand, *, letter_key: str, by: str) -> DeadRequeued:
        id_ = command.instance_id
        try:
            require_there(fold_instance(await self.ports.log.read(self.ports.stack.workflow(id_))))
        except UnreadableEvent as error:
            raise Rejected(f"this version cannot read its instance: {error}") from error
        await self.ports.inbox.send(command, id=f"recall.{letter_key}")
        return DeadRequeued(by=by, instance_id=id_)

    async def _episode(self, episode_id: str) -> Episode:
        try:
            return fold(await self.ports.log.read(self.ports.stack.episode(episode_id)))
        except UnreadableEvent as error:
            raise Rejected(f"this version cannot read its episode: {error}") from error
