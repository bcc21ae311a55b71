"""Requests to cancel an episode, and how it ends then. Pure.

    queued ──▶ canceled              no node had begun it, or the last one left it
    running ──▶ canceled             at once if it waits, else before its next turn
    blocked ──▶ canceled             by any node
    converging ──▶ canceled          outputs that are not delivered yet are canceled with it
               ──▶ as it would have  too late: no output is left that could be

What is on the journal as true stays: an episode that has converged still has its findings carried
out, and what was delivered stays delivered.

A request is known in two ways. A command in the episode's inbox makes sure of it: it stays there
until the episode has ended, whatever crashes. A key in the gates makes it fast: every node watches
those, so that whoever runs the episode stops at once, even a node that has no room for a command.
"""

from __future__ import annotations

from typing import Final

from engine.commands import Cancel
from engine.fields import BY_CHARS_MAX, REASON_CHARS_MAX, check_id, check_name, check_text
from streams import commands

CANCELED: Final = "canceled"
"""Error class of an episode that a person or a program has canceled."""

KEY_TTL_S: Final = 3_600
"""How long the key stands, in seconds: as long as a command that no node can follow is tried. If
that is not enough, whoever gets the command sets it again."""


def cancel_command(actor: str, episode_id: str, *, by: str, reason: str = "") -> commands.Cancel:
    """Return the command that has an episode canceled.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    check_name("actor", actor)
    check_id("episode_id", episode_id)
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    check_text("reason", reason, least=0, most=REASON_CHARS_MAX)
    return commands.Cancel(actor_id=actor, episode_id=episode_id, by=by, reason=reason)


def end_of(command: commands.Cancel) -> Cancel:
    """Return how an episode ends that `command` cancels: it says who wanted that, and why."""
    why = f": {command.reason}" if command.reason else ""
    return Cancel(error_class=CANCELED, error_detail=f"by {command.by}{why}")
