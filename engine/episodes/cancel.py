"""Requests to cancel an episode.

    queued ──▶ canceled              no node had begun it, or the last one left it
    running ──▶ canceled             at once if it waits, else before its next turn
    blocked ──▶ canceled             by any node
    converging ──▶ canceled          outputs that are not delivered yet are canceled with it
               ──▶ as it would have  too late: every output is settled

A converged episode still has its findings applied. A request travels twice: as a command, which
stays in the queue until the episode has ended, whatever crashes; and as a key in a bucket that
every node watches, so that the node which runs the episode stops at once. Canceling interrupts user
code that waits, but never a write to the journal.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from engine.episodes.episode import CancelEpisode
from engine.validation import check_cause, check_id, check_name
from streams.keys import cancel_key
from streams.model import commands
from streams.model.commands import Cancel
from streams.ports.all import Ports
from streams.tracing import traceparent
from streams.wire import codec

CANCELED: Final = "canceled"
"""Error class of an episode that a person or a program has canceled."""

KEY_TTL_S: Final = 3_600
"""How long the key lives, in seconds: as long as a command that no node can handle is retried. A
node that gets the command sets the key again.
"""


def cancel_command(actor: str, episode_id: str, *, by: str, reason: str = "") -> commands.Cancel:
    """Return the command that cancels an episode; raises `BadRequest`."""
    check_name("actor", actor)
    check_id("episode_id", episode_id)  # guard: cancel-names-episode
    check_cause(by, reason)
    return commands.Cancel(actor_id=actor, episode_id=episode_id, by=by, reason=reason)


def end_of(command: commands.Cancel) -> CancelEpisode:
    """Return the end of an episode that `command` cancels."""
    why = f": {command.reason}" if command.reason else ""
    return CancelEpisode(error_class=CANCELED, error_detail=f"by {command.by}{why}")


async def cancel(ports: Ports, actor: str, episode_id: str, *, by: str, reason: str = "") -> None:
    """Ask for an episode of `actor` to be canceled, whether it is queued or runs.

    The request is durable when this returns. The node that runs the episode interrupts user code
    and ends it; any node of the actor ends a queued one. If the episode has converged, its
    undelivered outputs are canceled; if there are none, it finishes as it would have. One that has
    ended stays as it is. If the journal lacks the episode for about two minutes, the request
    becomes a dead letter.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    command = cancel_command(actor, episode_id, by=by, reason=reason)
    await ask_to_cancel(ports, command, id=f"cancel.{episode_id}.{uuid4().hex}")


async def ask_to_cancel(ports: Ports, command: Cancel, *, id: str) -> None:
    """Send a cancel command under `id`."""
    key, said = cancel_key(command.episode_id), codec.encode_command(command)
    # The command last: the node that acknowledges it deletes the key.
    await ports.gates.put(key, said, ttl_s=KEY_TTL_S)  # guard: full-node-hears-cancel
    await ports.commands.send(command, id=id, trace=traceparent())  # guard: cancel-outlives-hearer
