"""The episodes that a node runs, and how each can be canceled while it does.

To cancel is a wish. Whoever drives the episode heeds it before the next turn, and user code that
waits is interrupted at once: a tool, a synthesizer, a callback. Nothing that is on its way to the
journal is. Once it is recorded what is true the wish comes too late for all but outputs that are
not delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from engine.commands import Cancel
from streams.events import EpisodeOpened

WISHES_MAX: Final = 100_000
"""Episodes that are to be canceled, as far as a node remembers; beyond that it forgets the oldest.
What it forgets the command for it still does, once it comes again."""


class Run:
    """One episode that a node runs."""

    def __init__(self, opened: EpisodeOpened) -> None:
        """Begin with nobody wishing to cancel it."""
        self.opened = opened
        self.canceled: Cancel | None = None
        """Why it is to be canceled, by the first who said so; None: it is not."""
        self._interrupt: Callable[[], None] | None = None

    def cancel(self, end: Cancel) -> None:
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


class Running:
    """What a node runs now, by episode, and what it knows is to be canceled."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._runs: dict[str, Run] = {}
        self._wishes: dict[str, Cancel] = {}

    @contextmanager
    def during(self, run: Run) -> Iterator[None]:
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

    def of(self, actor_id: str, expectation_id: str) -> list[Run]:
        """Return what runs of one expectation."""
        wanted = (actor_id, expectation_id)
        return [
            run
            for run in self._runs.values()
            if (run.opened.actor_id, run.opened.expectation_id) == wanted
        ]

    def wish(self, episode_id: str, end: Cancel) -> bool:
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
