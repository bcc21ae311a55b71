"""Buries what cannot be done: a dead letter with the reason, for a person to decide about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from engine import dead, telemetry
from engine.output import Output
from engine.runtime.parcel import Parcel
from engine.runtime.settler import Settler
from streams import codec
from streams.clock import Clock
from streams.commands import Command
from streams.delivery import Unreadable
from streams.errors import VersionConflict
from streams.events import (
    PAYLOAD_KEPT_BYTES_MAX,
    DeadLettered,
    EpisodeOpened,
)
from streams.layout import Kind
from streams.log import START, Commit
from streams.parsing import inbox_of
from streams.ports import Ports

OUTPUT_FAILED: Final = "output_failed"
"""Reason of the dead letter of an output."""

log = structlog.get_logger("vigil.undertaker")


@dataclass(frozen=True)
class Undertaker:
    """Writes dead letters, for one node."""

    ports: Ports
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
        await self._write(self.ports.stack.dead(message.stream, str(message.seq)), letter)

    async def bury_episode(self, opened: EpisodeOpened, *, reason: str, detail: str) -> None:
        """Keep a dead letter for an episode that nobody shall try again by itself.

        Raises:
            Unavailable: it could not be written; do not end the episode yet.
        """
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
        await self._write(stack.dead(Kind.EPISODE, opened.episode_id), letter)

    async def bury_output(self, output: Output) -> None:
        """Keep a dead letter for an output that has failed, each time that it has.

        Others may have gone on with it since `output` was read: who proposed it anew, or had it
        tried again, has found no letter to settle. So once there is one, the output is looked at
        again, and the letter settled if need be. Whoever goes on with it later finds the letter.

        Raises:
            Unavailable: it could not be written; its episode is not to go on yet.
        """
        proposed, failed, stack = output.proposed, output.failed, self.ports.stack
        assert proposed is not None, "what failed was proposed"
        assert failed is not None, "what is buried has failed"
        subject = stack.output(proposed.output_key)
        letter = DeadLettered(
            reason=OUTPUT_FAILED,
            detail=f"{proposed.adapter}: {failed.error_class}: {failed.error_detail}",
            stream=stack.stream_of(subject),
            seq=START,
            subject=subject,
            actor_id=proposed.actor_id,
            episode_id=proposed.episode_id,
        )
        await self._write(stack.dead(Kind.OUTPUT, dead.cause_of(output)), letter)
        # It is only read: whoever adds nothing needs no pen.
        by_now = Parcel(self.ports, self.clock, proposed.output_key, pen="")
        await by_now.read()
        settler = Settler(self.ports, self.clock)
        await settler.note_gone_on_from(output, by_now.history)

    async def bury_command(self, command: Command, *, seq: int, reason: str, detail: str) -> None:
        """Keep a dead letter for a command, at `seq` of its queue, that no node can follow.

        Raises:
            Unavailable: it could not be written; do not acknowledge the command.
        """
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
        await self._write(stack.dead(letter.stream, str(seq)), letter)

    async def _write(self, subject: str, letter: DeadLettered) -> None:
        commit = Commit(id=f"bury.{subject}", at=self.clock.now(), events=(letter,))
        try:
            await self.ports.log.append(subject, commit, after=START)
        except VersionConflict:
            return  # Another actor, an earlier delivery or an earlier owner has buried it.
        telemetry.dead_letters.add(1, {"reason": letter.reason})
        log.warning("buried", reason=letter.reason, detail=letter.detail, subject=letter.subject)
