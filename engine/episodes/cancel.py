"""Asks for an episode, or for its end, for a person or a program: fires by hand, and cancels.

Requests to cancel an episode, and how it ends then. Pure.

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

The episodes that a node runs, and how each can be canceled while it does.

To cancel is a wish. Whoever drives the episode heeds it before the next turn, and user code that
waits is interrupted at once: a tool, a synthesizer, a callback. Nothing that is on its way to the
journal is. Once it is recorded what is true the wish comes too late for all but outputs that are
not delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from engine.episodes.episode import CancelEpisode
from engine.validation import BY_CHARS_MAX, REASON_CHARS_MAX, check_id, check_name, check_text
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


def end_of(command: commands.Cancel) -> CancelEpisode:
    """Return how an episode ends that `command` cancels: it says who wanted that, and why."""
    why = f": {command.reason}" if command.reason else ""
    return CancelEpisode(error_class=CANCELED, error_detail=f"by {command.by}{why}")


async def cancel(ports: Ports, actor: str, episode_id: str, *, by: str, reason: str = "") -> None:
    """Ask for an episode of `actor` to be canceled, whether it is queued or runs.

    The request is durable when this returns. A node that runs the episode hears of it at once,
    interrupts what waits (a tool, a synthesizer, a callback) and ends it; one that is queued is
    ended by any node of the actor, though it may have no room. Of one that has decided what is true
    the outputs are canceled that are not delivered yet; if there are none, it finishes as it would
    have. One that has ended stays as it is. An episode that the journal does not hold for about two
    minutes makes the request a dead letter.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    command = cancel_command(actor, episode_id, by=by, reason=reason)
    await ask_to_cancel(ports, command, id=f"cancel.{episode_id}.{uuid4().hex}")


async def ask_to_cancel(ports: Ports, command: Cancel, *, id: str) -> None:
    """Send a command that has an episode canceled, under `id`."""
    key, said = cancel_key(command.episode_id), codec.encode_command(command)
    # The command last: whoever answers for it deletes the key.
    await ports.gates.put(key, said, ttl_s=KEY_TTL_S)
    await ports.commands.send(command, id=id, trace=traceparent())


WISHES_MAX: Final = 100_000
"""Episodes that are to be canceled, as far as a node remembers; beyond that it forgets the oldest.
What it forgets the command for it still does, once it comes again."""


class EpisodeRun:
    """One episode that a node runs."""

    def __init__(self, opened: EpisodeOpened) -> None:
        """Begin with nobody wishing to cancel it."""
        self.opened = opened
        self.canceled: CancelEpisode | None = None
        """Why it is to be canceled, by the first who said so; None: it is not."""
        self._interrupt: Callable[[], None] | None = None

    def cancel(self, end: CancelEpisode) -> None:
        """Have the episode end so, unless it is too late for that."""
        if self.canceled is not None:
            return
        self.canceled = end
        if self._interrupt is not None:
            self._interrupt()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` when the episode is canceled while the context lasts."""
        self._interrupt = interrupt
        try:
            yield
        finally:
            self._interrupt = None


class RunningEpisodes:
    """What a node runs now, by episode, and what it knows is to be canceled."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._runs: dict[str, EpisodeRun] = {}
        self._wishes: dict[str, CancelEpisode] = {}

    @contextmanager
    def during(self, run: EpisodeRun) -> Iterator[None]:
        """Know of `run` while the context lasts; what is to be canceled is so from the start."""
        episode_id = run.opened.episode_id
        self._runs[episode_id] = run
        if episode_id in self._wishes:
            run.cancel(self._wishes[episode_id])
        try:
            yield
        finally:
            # A node that lost an episode and has it again meanwhile runs the newer one.
            if self._runs.get(episode_id) is run:
                del self._runs[episode_id]

    def of(self, actor_id: str, expectation_id: str) -> list[EpisodeRun]:
        """Return what runs of one expectation."""
        wanted = (actor_id, expectation_id)
        return [
            run
            for run in self._runs.values()
            if (run.opened.actor_id, run.opened.expectation_id) == wanted
        ]

    def wish(self, episode_id: str, end: CancelEpisode) -> bool:
        """Have an episode end so if it runs here, now or later; return whether it does now."""
        if episode_id not in self._wishes and len(self._wishes) >= WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]
        self._wishes.setdefault(episode_id, end)
        run = self._runs.get(episode_id)
        if run is not None:
            run.cancel(end)
        return run is not None

    def forget(self, episode_id: str) -> None:
        """Wish nothing of an episode any more: it has ended. What is canceled by now stays so."""
        self._wishes.pop(episode_id, None)
