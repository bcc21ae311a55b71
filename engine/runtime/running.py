"""The episodes that a node runs, and how each can be canceled while it does.

To cancel is a wish. Whoever drives the episode heeds it before the next turn, and user code that
waits is interrupted at once: a tool, a synthesizer, a callback. Nothing that is on its way to the
journal is. Once it is recorded what is true the wish comes too late, and the episode finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.episode import Cancel
from streams.events import EpisodeOpened


class Run:
    """One episode that a node runs."""

    def __init__(self, opened: EpisodeOpened) -> None:
        """Begin with nobody wishing to cancel it."""
        self.opened = opened
        self.canceled: Cancel | None = None
        """Why it is to be canceled, by the first who said so; None: it is not."""
        self._interrupt: Callable[[], None] | None = None

    def cancel(self, *, error_class: str, detail: str) -> None:
        """Have the episode end as canceled, unless it is too late for that."""
        if self.canceled is not None:
            return
        self.canceled = Cancel(error_class=error_class, error_detail=detail)
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
    """What a node runs now, by episode."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._runs: dict[str, Run] = {}

    @contextmanager
    def during(self, run: Run) -> Iterator[None]:
        """Know of `run` while the context lasts."""
        episode_id = run.opened.episode_id
        self._runs[episode_id] = run
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

    def cancel(self, episode_id: str, *, error_class: str, detail: str) -> bool:
        """Have an episode end as canceled, see `Run.cancel`; return whether it runs here."""
        run = self._runs.get(episode_id)
        if run is not None:
            run.cancel(error_class=error_class, detail=detail)
        return run is not None
