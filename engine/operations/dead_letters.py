"""Requeues and discards dead letters, as a person decides: read → `remedy` → act → append.

Ids come from the letter, so requeuing again completes what a crash cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app import dedupe
from engine.dead_letters.letter import DeadLetter, _waiting
from engine.dead_letters.write import letters, settle
from engine.episodes.episode import ENDED, Episode, fold
from engine.episodes.open import open_episode
from engine.errors import Refused, Rejected
from engine.operations import sweep
from engine.operations.sweep import require_there
from engine.outputs.decide import check_is_carried, tried_again
from engine.outputs.output import fold as fold_output
from engine.runtime.store import Loaded
from engine.waits.signal import RESOLVED
from engine.workflows.instance import fold_instance
from streams.clock import Clock
from streams.errors import UnreadableEvent
from streams.json import UNDECODABLE, JsonObject
from streams.layout import Kind, Stream
from streams.model.commands import (
    Cancel,
    CancelOutput,
    Decide,
    Resolve,
    RetryOutput,
    WorkflowCommand,
)
from streams.model.events import DeadDiscarded, DeadLettered, DeadRequeued, EpisodeOpened
from streams.ports.all import Ports
from streams.subjects import Stack
from streams.tracing import traceparent
from streams.wire.codec import decode_command, decode_workflow_command

Said: TypeAlias = Cancel | CancelOutput | Decide | Resolve | RetryOutput
"""Commands with a person's or a program's decision; the others only make a node look."""


class Republish(msgspec.Struct, frozen=True):
    """Publish the domain event at this sequence again."""

    seq: int


class Reopen(msgspec.Struct, frozen=True):
    """Open another episode for the trigger of this one."""

    episode_id: str


class RecallEpisode(msgspec.Struct, frozen=True):
    """Send a command for this episode again: no node could run it before."""

    episode_id: str
    command: Said | None = None
    """The command, if it has somebody's decision; None: the episode's state calls for a new one."""


class Redeliver(msgspec.Struct, frozen=True):
    """Retry this output."""

    output_key: str
    actor_id: str
    episode_id: str
    """The episode that proposed it."""


class Resend(msgspec.Struct, frozen=True):
    """Send this command to its workflow instance again."""

    command: WorkflowCommand


class Resignal(msgspec.Struct, frozen=True):
    """Publish this signal, which no wait has got, as a new event."""

    payload: JsonObject


Remedy: TypeAlias = Republish | Reopen | RecallEpisode | Redeliver | Resend | Resignal
"""How a letter is requeued."""


def remedy(letter: DeadLetter, *, stack: Stack) -> Remedy:
    """Return how `letter` can be requeued; `Rejected` if it is settled or cannot be."""
    lettered = _waiting(letter)
    if lettered.episode_id and stack.is_of(lettered.stream, Stream.WORK):
        return RecallEpisode(lettered.episode_id, _said_in(lettered))
    if lettered.episode_id:
        kind, key = stack.aggregate_of(lettered.subject)
        if kind is Kind.OUTPUT:
            return Redeliver(key, lettered.actor_id, lettered.episode_id)
        return Reopen(lettered.episode_id)
    if lettered.stream == stack.stream(Stream.EVENTS):
        return Republish(lettered.seq)
    if lettered.subject == stack.event(RESOLVED):
        return _resignal_of(lettered)
    if stack.is_of(lettered.stream, Stream.WORK) and (resend := _resend_of(lettered)):
        return resend
    raise Rejected("it was a command, and its queue keeps none that was given up; discard it")


def reopened(episode: Episode, *, stack: Stack) -> EpisodeOpened:
    """Return the opening of the next generation of `episode`, for the same trigger."""
    before = episode.opened
    if before is None:
        raise Rejected("the journal does not hold its episode any more; discard it")
    if episode.status not in ENDED:  # guard: generation-waits-for-end
        raise Rejected(f"its episode is still {episode.status}; once it has ended, try again")
    generation = before.generation + 1
    episode_id = dedupe.episode_id(
        stack=stack.name,
        actor=before.actor_id,
        expectation=before.expectation_id,
        dedupe_key=before.dedupe_key,
        generation=generation,
    )
    # A person asks for it, now: neither another node's wish nor a time that has passed holds.
    return replace(
        before,
        episode_id=episode_id,
        generation=generation,
        opened_by="",
        is_request=False,
        in_lane=False,
        start_by=None,  # guard: wanted-again-stays
    )


def recalled(episode: Episode) -> Episode:
    """Return `episode` if a command for it makes sense, else raise `Rejected`."""
    if episode.opened is None:
        raise Rejected("the journal does not hold its episode; discard it")
    if episode.status in ENDED:
        raise Rejected(f"its episode is {episode.status} by now; discard it")
    return episode


def _said_in(lettered: DeadLettered) -> Said | None:
    try:
        command = decode_command(lettered.payload)
    except UNDECODABLE:
        return None
    return command if isinstance(command, Said) else None


def _resend_of(lettered: DeadLettered) -> Resend | None:
    try:
        return Resend(decode_workflow_command(lettered.payload))
    except UNDECODABLE:
        return None


def _resignal_of(lettered: DeadLettered) -> Resignal:
    if lettered.payload_size_bytes > len(lettered.payload):  # guard: cut-signal-not-resent
        raise Rejected("its result was too large to be kept whole; send the signal again yourself")
    return Resignal(msgspec.json.decode(lettered.payload, type=JsonObject))


@dataclass(frozen=True)
class DeadLetterRequests:
    """Requeues and discards, for one person or node."""

    ports: Ports
    clock: Clock

    async def requeue(self, letter_key: str, *, by: str) -> DeadRequeued:
        """Requeue a letter, and return what was done.

        An event is published again, as it came; for an episode that failed, another one is opened;
        a command is sent again; an output is retried; a signal is published anew. `Rejected` if the
        letter does not exist, is settled or cannot be requeued.
        """
        letter = await self._load(letter_key)
        match remedy(letter.state, stack=self.ports.stack):
            case Republish(seq=seq):
                requeued = await self._republish(seq, letter_key=letter_key, by=by)
            case Reopen(episode_id=episode_id):
                requeued = await self._reopen(episode_id, by=by)
            case RecallEpisode() as recall:
                requeued = await self._recall(recall, letter_key=letter_key, by=by)
            case Redeliver() as redeliver:
                requeued = await self._redeliver(redeliver, letter_key=letter_key, by=by)
            case Resignal(payload=payload):
                requeued = await self._resignal(payload, letter_key=letter_key, by=by)
            case Resend(command=command):
                requeued = await self._resend(command, letter_key=letter_key, by=by)
        await settle(letters(self.ports, self.clock), letter, requeued)
        return requeued

    async def discard(self, letter_key: str, *, by: str, reason: str) -> DeadDiscarded:
        """Record that a letter needs nothing more; `Rejected` if it is settled or missing."""
        letter = await self._load(letter_key)
        discarded = DeadDiscarded(by=by, reason=reason)
        await settle(letters(self.ports, self.clock), letter, discarded)
        return discarded

    async def _load(self, letter_key: str) -> Loaded[DeadLetter]:
        return await letters(self.ports, self.clock).load(self.ports.stack.dead_letter(letter_key))

    async def _republish(self, seq: int, *, letter_key: str, by: str) -> DeadRequeued:
        # guard: requeued-under-one-id
        event_seq = await self.ports.domain_events.republish(seq, id=f"requeue.{letter_key}")
        if event_seq is None:
            stream = self.ports.stack.stream(Stream.EVENTS)
            raise Rejected(f"{stream} does not hold the message at {seq} any more; discard it")
        return DeadRequeued(by=by, event_seq=event_seq)

    async def _reopen(self, episode_id: str, *, by: str) -> DeadRequeued:
        opened = reopened(await self._episode(episode_id), stack=self.ports.stack)
        await open_episode(self.ports, opened, at=self.clock.now(), trace=traceparent())
        return DeadRequeued(by=by, episode_id=opened.episode_id)

    async def _recall(self, recall: RecallEpisode, *, letter_key: str, by: str) -> DeadRequeued:
        episode = recalled(await self._episode(recall.episode_id))
        command = recall.command or sweep.call_for(episode)  # guard: cancel-letter-tried-again
        await self.ports.commands.send(command, id=f"recall.{letter_key}")
        return DeadRequeued(by=by, episode_id=recall.episode_id)

    async def _redeliver(self, redeliver: Redeliver, *, letter_key: str, by: str) -> DeadRequeued:
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
        await self.ports.commands.send(retry, id=id_)
        return DeadRequeued(by=by, episode_id=redeliver.episode_id)

    async def _resend(self, command: WorkflowCommand, *, letter_key: str, by: str) -> DeadRequeued:
        id_ = command.instance_id
        try:
            require_there(fold_instance(await self.ports.log.read(self.ports.stack.workflow(id_))))
        except UnreadableEvent as error:
            raise Rejected(f"this version cannot read its instance: {error}") from error
        await self.ports.commands.send(command, id=f"recall.{letter_key}")
        return DeadRequeued(by=by, instance_id=id_)

    async def _resignal(self, payload: JsonObject, *, letter_key: str, by: str) -> DeadRequeued:
        events, id_ = self.ports.domain_events, f"requeue.{letter_key}"
        return DeadRequeued(by=by, event_seq=await events.publish(RESOLVED, payload, id=id_))

    async def _episode(self, episode_id: str) -> Episode:
        try:
            return fold(await self.ports.log.read(self.ports.stack.episode(episode_id)))
        except UnreadableEvent as error:
            raise Rejected(f"this version cannot read its episode: {error}") from error
