"""Folds commits into row changes, aggregate by aggregate. Pure.

No two aggregates share a row, so a part of the log is folded per aggregate. Cutting it anywhere and
projecting the pieces one after the other leaves the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, get_args

from projections.dead_letters import DeadLetterFold
from projections.definitions import DefinitionFold
from projections.episodes import EpisodeFold
from projections.findings import FindingFold
from projections.lanes import LaneFold
from projections.orders import OrderFold
from projections.outputs import OutputFold
from projections.people import PeopleFold
from projections.rows import RowBatch, RowChange, arrange, events_of, key
from projections.workflows import WorkflowFold
from streams.errors import BadName, UnreadableEvent
from streams.layout import Kind
from streams.model.events import SignalEvent
from streams.ports.log import Recorded
from streams.subjects import Stack


class AggregateFold(Protocol):
    """The fold of some commits of one aggregate."""

    def add(self, record: Recorded) -> None:
        """Take the next commit, or raise `UnreadableEvent` and leave it out."""

    def changes(self) -> Iterator[RowChange]:
        """Yield the changes that they ask for, each row once."""


_SIGNALS: Final[frozenset[type[SignalEvent]]] = frozenset(get_args(SignalEvent))


class SignalFold:
    """The fold of the signals of a reference, which has no rows: the episodes' rows say it all."""

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it does not belong there."""
        events_of(record, _SIGNALS, whose="a signal")  # guard: no-signal-stops-no-projector

    def changes(self) -> Iterator[RowChange]:
        """Yield nothing."""
        return iter(())


class AggregateFolds:
    """The fold of a building of the log."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._at: dict[str, AggregateFold] = {}
        """By subject."""
        self._of: dict[tuple[Kind, str], AggregateFold] = {}
        """By what names its rows: two subjects may come to that, if one has a NUL."""

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it does not belong there, and is left out."""
        life = self._at.get(record.subject)
        if life is None:
            life = self._at[record.subject] = self._life_of(record)
        life.add(record)

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        for life in self._of.values():
            yield from life.changes()

    def batches(self) -> Sequence[RowBatch]:
        """Return the statements that change them."""
        return arrange(self.changes())

    def _life_of(self, record: Recorded) -> AggregateFold:
        try:
            kind, aggregate = self._stack.aggregate_of(record.subject)
        except BadName as error:
            raise UnreadableEvent(record.subject, seq=record.seq, detail=str(error)) from error
        place = kind, key(aggregate)
        if place not in self._of:
            self._of[place] = _begin(kind, aggregate, record)
        return self._of[place]


def project(records: Iterable[Recorded], *, stack: Stack) -> list[RowChange]:
    """Return the row changes of `records`, whatever their aggregates are."""
    lives = AggregateFolds(stack)
    for record in records:
        lives.add(record)
    return list(lives.changes())


def _begin(kind: Kind, aggregate: str, record: Recorded) -> AggregateFold:
    match kind:
        case Kind.EPISODE:
            return EpisodeFold.begin(record, aggregate)
        case Kind.FINDING:
            return FindingFold(aggregate)
        case Kind.OUTPUT:
            return OutputFold(aggregate)
        case Kind.LANE:
            return LaneFold(aggregate)
        case Kind.WORKFLOW:
            return WorkflowFold(aggregate)
        case Kind.DEFINITION:
            return DefinitionFold(aggregate)
        case Kind.SIGNAL:
            return SignalFold()
        case Kind.ORDER:
            return OrderFold(aggregate)
        case Kind.PERSON:
            return PeopleFold(aggregate)
        case Kind.DEAD:
            return DeadLetterFold(aggregate)
