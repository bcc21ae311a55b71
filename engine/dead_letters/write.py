"""Writes dead letters: what could not be processed, with the reason, until a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from engine import telemetry
from engine.dead_letters import letter as dead_letter
from engine.dead_letters.letter import DeadLetter
from engine.runtime.store import Loaded, Store, append_first
from streams.clock import Clock
from streams.errors import TooLarge, Unwritable
from streams.json import raw
from streams.layout import Kind, Stream
from streams.model.commands import Command
from streams.model.events import (
    PAYLOAD_KEPT_BYTES_MAX,
    DeadDiscarded,
    DeadEvent,
    DeadLettered,
    DeadRequeued,
    EpisodeOpened,
)
from streams.model.triggers import Trigger
from streams.ports.all import Ports
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import DomainEvent
from streams.ports.log import START, Commit
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import inbox_of

log = structlog.get_logger("vigil.dead_letters")


@dataclass(frozen=True)
class DeadLetterWriter:
    """Writes dead letters, for one node. Writing one again, from any node, changes nothing.

    Acknowledge the message, or end the episode, only after its dead letter is written.
    """

    ports: Ports
    clock: Clock

    async def write_message(self, message: Unreadable, *, actor_id: str) -> None:
        """Write a dead letter for `message`."""
        letter = DeadLettered(
            reason=message.reason,
            detail=message.detail,
            stream=message.stream,
            seq=message.seq,
            subject=message.subject,
            actor_id=actor_id,
            headers=message.headers,
            payload=message.data[:PAYLOAD_KEPT_BYTES_MAX],
            payload_size_bytes=len(message.data),
        )
        await self.write(self.ports.stack.dead(message.stream, str(message.seq)), letter)

    async def write_episode(self, opened: EpisodeOpened, *, reason: str, detail: str) -> None:
        """Write a dead letter for an episode that is not to be retried automatically."""
        stack = self.ports.stack
        subject = stack.episode(opened.episode_id)
        letter = DeadLettered(
            reason=reason,
            detail=detail,
            stream=stack.stream_of(subject),
            seq=START,
            subject=subject,
            actor_id=opened.actor_id,
            episode_id=opened.episode_id,
        )
        await self.write(stack.dead(Kind.EPISODE, opened.episode_id), letter)

    async def write_command(self, command: Command, *, seq: int, reason: str, detail: str) -> None:
        """Write a dead letter for a command, at `seq` of its queue, that no node can handle."""
        stack, data = self.ports.stack, codec.encode_command(command)
        subject = inbox_of(stack, command)
        letter = DeadLettered(
            reason=reason,
            detail=detail,
            stream=stack.stream_of(subject),
            seq=seq,
            subject=subject,
            actor_id=command.actor_id,
            episode_id=command.episode_id,
            payload=data[:PAYLOAD_KEPT_BYTES_MAX],
            payload_size_bytes=len(data),
        )
        await self.write(stack.dead(letter.stream, str(seq)), letter)

    async def write(self, subject: str, letter: DeadLettered) -> None:
        """Append `letter` at `subject`, unless one is there."""
        commit = Commit(id=f"bury.{subject}", at=self.clock.now(), events=(letter,))
        if not await append_first(self.ports.log, subject, commit):
            return  # Another actor, an earlier delivery or an earlier owner has written it.
        telemetry.dead_letters.add(1, {"reason": letter.reason})
        log.warning(
            "dead letter written",
            reason=letter.reason,
            detail=letter.detail,
            subject=letter.subject,
        )


def letters(ports: Ports, clock: Clock) -> Store[DeadLetter, DeadEvent]:
    """Return the dead letters of a stack."""
    return Store(ports.log, clock, dead_letter.fold)


async def settle(
    store: Store[DeadLetter, DeadEvent],
    known: Loaded[DeadLetter],
    command: DeadRequeued | DeadDiscarded,
) -> None:
    """Append `command`, which settles the letter `known`; rejected if it was settled otherwise."""

    def rule(letter: DeadLetter, _: datetime) -> Sequence[DeadEvent]:
        if letter is not known.state and letter.settled == command:  # guard: faster-node-no-refusal
            return ()  # A node that was faster at requeuing it has recorded that.
        return (dead_letter.decide(letter, command),)

    # Two people may decide at once, and each decision is a commit of its own.
    id_ = f"{type(command).__name__}.{known.subject}.{store.clock.now().isoformat()}"
    await store.change(known.subject, rule, id=id_, known=known)


def rejected(event: DomainEvent, stack: Stack, *, reason: str, detail: str) -> Unreadable:
    """Return `event` as a message that cannot be handled, for a dead letter."""
    return Unreadable(
        reason=reason,
        detail=detail,
        stream=event.stream or stack.stream(Stream.EVENTS),
        seq=event.seq,
        subject=event.name if event.stream else stack.event(event.name),
        headers={},
        data=bytes(raw(event.payload)),
    )


def unopened(
    trigger: Trigger,
    cause: object,
    error: TooLarge | Unwritable,
    *,
    stack: Stack,
    seq: int,
    actor_id: str,
) -> Unreadable:
    """Return the cause, at `seq`, of what cannot be opened, for a dead letter."""
    reason = "too_large" if isinstance(error, TooLarge) else "unwritable"
    if isinstance(cause, DomainEvent):
        return rejected(cause, stack, reason=reason, detail=str(error))
    subject = stack.due(actor_id)
    return Unreadable(
        reason=reason,
        detail=str(error),
        stream=stack.stream_of(subject),
        seq=seq,
        subject=subject,
        headers={},
        data=bytes(raw(trigger)),
    )
