"""Buries what cannot be done: one dead letter per message, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from engine import telemetry
from streams.clock import Clock
from streams.delivery import Unreadable
from streams.errors import VersionConflict
from streams.events import PAYLOAD_KEPT_BYTES_MAX, DeadLettered
from streams.log import START, Commit, EventLog
from streams.subjects import Stack

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
        subject = self.stack.dead(message.stream, str(message.seq))
        commit = Commit(
            id=f"bury.{message.stream}.{message.seq}", at=self.clock.now(), events=(letter,)
        )
        try:
            await self.log.append(subject, commit, after=START)
        except VersionConflict:
            return  # Another actor or an earlier delivery has buried it.
        telemetry.dead_letters.add(1, {"reason": message.reason})
        log.warning(
            "message buried",
            reason=message.reason,
            detail=message.detail,
            subject=message.subject,
            seq=message.seq,
        )
