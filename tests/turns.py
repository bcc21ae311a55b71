"""What a journal says of turns: how many episodes ran at a time, and in which order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from streams.model.events import EpisodeBlocked, EpisodeFinished, EpisodeOpened, EpisodeStarted
from streams.ports.log import Recorded

KeyOf: TypeAlias = Callable[[EpisodeOpened], str]


@dataclass
class Turns:
    """The turns of all episodes on a journal of one partition, commit by commit."""

    key_of: KeyOf
    opened: dict[str, EpisodeOpened] = field(default_factory=dict)
    """By subject, in the order in which they were opened."""
    begun: list[str] = field(default_factory=list)
    """Subjects, in the order in which they were begun."""
    ended: dict[str, EpisodeFinished] = field(default_factory=dict)
    most_at_once: int = 0
    most_of_a_key: Counter[str] = field(default_factory=Counter)
    """Key → most episodes that ran at a time."""
    _running: set[str] = field(default_factory=set)

    def take(self, records: Iterable[Recorded]) -> None:
        """Take the next commits of the journal, of whatever aggregates."""
        for record in records:
            for event in record.commit.events:
                self._take(record.subject, event)
            self._look()

    def _take(self, subject: str, event: object) -> None:
        match event:
            case EpisodeOpened():
                assert subject not in self.opened, f"{subject} was opened twice"
                self.opened[subject] = event
            case EpisodeStarted():
                if subject not in self.begun:
                    self.begun.append(subject)
                self._running.add(subject)
            case EpisodeBlocked():
                self._running.discard(subject)
            case EpisodeFinished():
                assert subject not in self.ended, f"{subject} ended twice"
                self.ended[subject] = event
                self._running.discard(subject)

    def _look(self) -> None:
        self.most_at_once = max(self.most_at_once, len(self._running))
        keys = Counter(self.key_of(self.opened[each]) for each in self._running)
        for key, count in keys.items():
            self.most_of_a_key[key] = max(self.most_of_a_key[key], count)

    def begun_by_key(self) -> dict[str, list[str]]:
        """Return the dedupe keys of the episodes that were begun, in order, by their key."""
        begun = defaultdict[str, list[str]](list)
        for subject in self.begun:
            opened = self.opened[subject]
            begun[self.key_of(opened)].append(opened.dedupe_key)
        return begun
