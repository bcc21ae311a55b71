"""Requests to cancel an episode, and the cancellation of episodes that run on this node.

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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from engine.episodes.episode import CancelEpisode
from engine.validation import check_cause, check_id, check_name
from streams.keys import cancel_key
from streams.model import commands
from streams.model.commands import Cancel
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.tracing import traceparent
from streams.wire import codec

CANCELED: Final = "canceled"
"""Error class of an episode that a person or a program has canceled."""

KEY_TTL_S: Final = 3_600
"""How long the key lives, in seconds: as long as a command that no node can handle is retried. A
node that gets the command sets the key again.
"""


WISHES_MAX: Final = 100_000
"""Canceled episodes that a node remembers before they run there; the oldest is forgotten first. The
command cancels it once it is delivered again.
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


@dataclass(eq=False)
class EpisodeRun:
    """One episode that a node runs."""

    opened: EpisodeOpened
    canceled: CancelEpisode | None = None
    """Why it is to be canceled, by the first request; None: it is not."""
    _interrupt: Callable[[], None] | None = None

    def cancel(self, end: CancelEpisode) -> None:
        """End the episode this way, unless it is too late."""
        if self.canceled is not None:
            return
        self.canceled = end
        if self._interrupt is not None:
            self._interrupt()  # guard: waiting-code-interrupted

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` if the episode is canceled within the context."""
        self._interrupt = interrupt
        try:
            yield
        finally:
            self._interrupt = None


class RunningEpisodes:
    """The episodes that a node runs, and those that are to be canceled."""

    def __init__(self) -> None:
        self._runs: dict[str, EpisodeRun] = {}
        self._wishes: dict[str, CancelEpisode] = {}

    @contextmanager
    def during(self, run: EpisodeRun) -> Iterator[None]:
        """Register `run` within the context; a cancellation that came before applies at once."""
        episode_id = run.opened.episode_id
        self._runs[episode_id] = run
        if episode_id in self._wishes:  # guard: cancel-wish-from-start
            run.cancel(self._wishes[episode_id])
        try:
            yield
        finally:
            # A node that lost an episode and has it again meanwhile runs the newer one.
            if self._runs.get(episode_id) is run:
                del self._runs[episode_id]

    def of(self, actor_id: str, expectation_id: str) -> list[EpisodeRun]:
        """Return the running episodes of one expectation."""
        wanted = (actor_id, expectation_id)
        return [
            run
            for run in self._runs.values()
            if (run.opened.actor_id, run.opened.expectation_id) == wanted
        ]

    def wish(self, episode_id: str, end: CancelEpisode) -> bool:
        """Cancel an episode if it runs here, now or later; return whether it runs now."""
        # guard: cancel-wishes-max
        if episode_id not in self._wishes and len(self._wishes) >= WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]
        self._wishes.setdefault(episode_id, end)
        run = self._runs.get(episode_id)
        if run is not None:
            run.cancel(end)
        return run is not None

    def forget(self, episode_id: str) -> None:
        """Forget the cancellation of an episode that has ended."""
        self._wishes.pop(episode_id, None)
