"""Commits on their way to be rows: those of one aggregate together. Pure.

No two aggregates share a row, so what a stretch of the log asks for is what each life in it
comes to. Cutting the stretch anywhere and projecting the pieces one after the other leaves
the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from projections.dead_letters import DeadLife
from projections.definitions import DefinitionLife
from projections.episodes import EpisodeLife
from projections.findings import FindingLife
from projections.lanes import LaneLife
from projections.outputs import OutputLife
from projections.rows import Change, key
from projections.workflows import WorkflowLife
from streams.errors import BadName, UnreadableEvent
from streams.layout import Kind
from streams.ports.log import Recorded
from streams.subjects import Stack


class Life(Protocol):
    """What some commits of one aggregate come to."""

    def add(self, record: Recorded) -> None:
        """Take the next commit, or raise `UnreadableEvent` and leave it out."""

    def changes(self) -> Iterator[Change]:
        """Yield what they ask for, each row once."""


class Lives:
    """What a stretch of the log comes to."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._at: dict[str, Life] = {}
        """By subject."""
        self._of: dict[tuple[Kind, str], Life] = {}
        """By what names its rows: two subjects may come to that, if one has a NUL."""

    def add(self, record: Recorded) -> None:
        """Take the next commit.

        Raises:
            UnreadableEvent: it does not belong where it is. It is left out.
        """
        life = self._at.get(record.subject)
        if life is None:
            life = self._at[record.subject] = self._life_of(record)
        life.add(record)

    def changes(self) -> Iterator[Change]:
        """Yield what it asks for, each row once."""
        for life in self._of.values():
            yield from life.changes()

    def _life_of(self, record: Recorded) -> Life:
        try:
            kind, aggregate = self._stack.aggregate_of(record.subject)
        except BadName as error:
            raise UnreadableEvent(record.subject, seq=record.seq, detail=str(error)) from error
        place = kind, key(aggregate)
        if place not in self._of:
            self._of[place] = _begin(kind, aggregate, record)
        return self._of[place]


def project(records: Iterable[Recorded], *, stack: Stack) -> list[Change]:
    """Return the row changes that `records` ask for, whatever their aggregates are.

    Raises:
        UnreadableEvent: one of them does not belong where it is.
    """
    lives = Lives(stack)
    for record in records:
        lives.add(record)
    return list(lives.changes())


def _begin(kind: Kind, aggregate: str, record: Recorded) -> Life:
    match kind:
        case Kind.EPISODE:
            return EpisodeLife.begin(record, aggregate)
        case Kind.FINDING:
            return FindingLife(aggregate)
        case Kind.OUTPUT:
            return OutputLife(aggregate)
        case Kind.LANE:
            return LaneLife(aggregate)
        case Kind.WORKFLOW:
            return WorkflowLife(aggregate)
        case Kind.DEFINITION:
            return DefinitionLife(aggregate)
        case Kind.DEAD:
            return DeadLife(aggregate)
