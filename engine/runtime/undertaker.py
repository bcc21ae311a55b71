"""Buries what cannot be done: one dead letter per message, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from engine import telemetry
from streams.clock import Clock
from streams.delivery import Unreadable
from streams.errors import VersionConflict
from streams.events import PAYLOAD_KEPT_BYTES_MAX, DeadLettered, EpisodeOpened
from streams.log import START, Commit, EventLog
from streams.subjects import Kind, Stack, Stream

log = structlog.get_logger("vigil.undertaker")


@dataclass(frozen=True)
class Undertaker:
    """Writes dead letters for one node."""

    log: EventLog
    stack: Stack
    clock: Clock

    async def bury(self, message: Unreadable, *, actor_id: str) -> None:
        """Keep `message` as a dead letter. Doing it again, from any node, changes nothing.

        Raises:
            Unavailable: it could not be written; do not acknowledge the message.
        """
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
        await self._write(self.stack.dead(message.stream, str(message.seq)), letter)

    async def bury_episode(self, opened: EpisodeOpened, *, reason: str, detail: str) -> None:
        """Keep a dead letter for an episode that nobody shall try again by itself.

        Raises:
            Unavailable: it could not be written; do not end the episode yet.
        """
        letter = DeadLettered(
            reason=reason,
            detail=detail,
            stream=self.stack.stream(Stream.JOURNAL),
            seq=START,
            subject=self.stack.episode(opened.episode_id),
            actor_id=opened.actor_id,
            episode_id=opened.episode_id,
        )
        await self._write(self.stack.dead(Kind.EPISODE, opened.episode_id), letter)

    async def _write(self, subject: str, letter: DeadLettered) -> None:
        commit = Commit(id=f"bury.{subject}", at=self.clock.now(), events=(letter,))
        try:
            await self.log.append(subject, commit, after=START)
        except VersionConflict:
            return  # Another actor, an earlier delivery or an earlier owner has buried it.
        telemetry.dead_letters.add(1, {"reason": letter.reason})
        log.warning("buried", reason=letter.reason, detail=letter.detail, subject=letter.subject)
