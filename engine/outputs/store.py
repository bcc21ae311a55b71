"""`OutputStore`: the log of one output, read and appended to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from engine.outputs.output import UNPROPOSED, Output, decide, evolve, fold
from engine.runtime.store import Loaded, Store
from streams.clock import Clock
from streams.model.events import (
    OutputEvent,
    OutputProposed,
)
from streams.ports.all import Ports
from streams.ports.log import Recorded

T = TypeVar("T")


@dataclass(frozen=True)
class Proposal:
    """One proposal of an output."""

    proposed: OutputProposed
    output: Output
    """The output after its events."""


class OutputStore:
    """An output as its log was last read."""

    def __init__(self, ports: Ports, clock: Clock, key: str, *, writer_id: str) -> None:
        """Begin unread, right for what nobody proposed; `writer_id` begins the commits' ids."""
        self.key = key
        self.subject = ports.stack.output(key)
        """Where its log is."""
        self.output = UNPROPOSED
        """The fold of its log."""
        self.has_written = False
        """Whether anything was appended."""
        self._store = Store[Output, OutputEvent](ports.log, clock, fold)
        self._loaded = Loaded(self.subject, UNPROPOSED)
        self._writer_id = writer_id
        self._commits = 0

    @property
    def version(self) -> int:
        """The version that it was last read at, or appended."""
        return self._loaded.version

    @property
    def history(self) -> Iterable[tuple[OutputEvent, datetime]]:
        """All its known events, and when they were recorded."""
        return ((event, each.commit.at) for each in self._loaded.records for event in _events(each))

    async def read(self) -> None:
        """Read the log, up to the newest commit that its leader has."""
        self._note(await self._store.load(self.subject))

    async def append(self, *events: OutputEvent) -> None:
        """Append `events` in one commit; `Overtaken` if others have appended since it was read."""
        now, after, before = self._store.clock.now(), self.output, self._loaded
        for event in events:
            after = evolve(after, decide(after, event), at=now)
        self._commits += 1
        id_ = f"{self._writer_id}-{self._commits}"
        self._note(await self._store.append(before, events, id=id_, at=now, state=after))
        self.has_written = True

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, is_known: bool = False) -> T:
        """Return `attempt`; while it raises `Overtaken`, read the output and call it again."""
        known = self._loaded if is_known else None

        async def informed(loaded: Loaded[Output]) -> T:
            if loaded is not known:
                self._note(loaded)
            return await attempt()

        return await self._store.retry(self.subject, informed, seed=self._writer_id, known=known)

    async def amend(
        self, ruled: Callable[[Output], OutputEvent | None], *, is_known: bool = False
    ) -> bool:
        """Read it, append the event that `ruled` returns, if any, and return whether it did.

        If it `is_known`, it was just read, and is read again only if others have appended since.
        """

        async def attempt() -> bool:
            event = ruled(self.output)
            if event is not None:
                await self.append(event)
            return event is not None

        return await self.retry(attempt, is_known=is_known)

    def proposal_of(self, episode_id: str) -> Proposal | None:
        """Return the newest proposal of an episode, though others may have proposed it since."""
        happened = list(self.history)
        begins = [at for at, (event, _) in enumerate(happened) if _is_proposal(event)]
        for begin, end in reversed(list(pairwise([*begins, len(happened)]))):
            event = happened[begin][0]
            if isinstance(event, OutputProposed) and event.episode_id == episode_id:
                return Proposal(event, _fold(happened[begin:end]))
        return None

    def _note(self, loaded: Loaded[Output]) -> None:
        self._loaded, self.output = loaded, loaded.state


def _fold(happened: Iterable[tuple[OutputEvent, datetime]]) -> Output:
    output = UNPROPOSED
    for event, at in happened:
        output = evolve(output, event, at=at)
    return output


def _events(record: Recorded) -> Iterable[OutputEvent]:
    return (event for event in record.commit.events if isinstance(event, OutputEvent))


def _is_proposal(event: OutputEvent) -> bool:
    return isinstance(event, OutputProposed)
