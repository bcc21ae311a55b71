"""The orders read model: a row for each order that people gave of a running stack. Pure.

What is to leave the tables, and what people hold, has rows of its own: the projector deletes by
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, get_args

from projections.rows import Row, RowChange, Statement, events_of, key, kind_of
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BreakerReset,
    HoldAdded,
    HoldRemoved,
    KindsEncrypted,
    LayoutSet,
    LoginRequired,
    LoginWaived,
    NodeModeSet,
    NodeModeUnset,
    OrderEvent,
    RetentionDeclared,
    RowsCut,
    SubjectErased,
)
from streams.model.retention import HoldKind
from streams.ports.log import Recorded

RECORD: Final = Statement(
    name="record_orders", table="orders", keys=("order_key", "journal_seq", "event_no")
)

SAVE_CUTS: Final = Statement(
    name="save_retention_cuts", table="retention_cuts", keys=("what", "actor_id")
)
DROP_CUTS: Final = Statement(name="drop_retention_cuts", table="retention_cuts", keys=())
SAVE_HOLDS: Final = Statement(
    name="save_retention_holds", table="retention_holds", keys=("kind", "held")
)

_EVENTS: Final[frozenset[type[OrderEvent]]] = frozenset(get_args(OrderEvent))


class OrderRow(Row, kw_only=True):
    """One row of `sql/record_orders.sql`."""

    order_key: str
    journal_seq: int
    event_no: int
    change: str
    at: datetime
    person: str
    reason: str | None
    node: str | None = None
    actor_id: str | None = None
    expectation_id: str | None = None
    mode: str | None = None
    partitions: int | None = None


class CutRow(Row, kw_only=True):
    """One row of `sql/save_retention_cuts.sql`."""

    what: str
    actor_id: str
    journal_seq: int
    before: datetime


class OlderCuts(Row, kw_only=True):
    """What `sql/drop_retention_cuts.sql` deletes: cuts of commits before this one."""

    journal_seq: int


class HoldRow(Row, kw_only=True):
    """One row of `sql/save_retention_holds.sql`."""

    kind: str
    held: str
    journal_seq: int
    is_held: bool
    at: datetime
    person: str
    reason: str | None


class OrderFold:
    """The fold of some consecutive commits of orders about one thing."""

    def __init__(self, aggregate: str) -> None:
        self._key = key(aggregate)
        self._rows: list[OrderRow] = []
        self._cuts: dict[tuple[str, str], CutRow] = {}
        self._hold: HoldRow | None = None

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it has no orders, and is left out."""
        events = events_of(record, _EVENTS, whose="an order")
        for event_no, event in enumerate(events):
            row = self._row(event, record, event_no=event_no)
            self._rows.append(row)
            match event:
                case RowsCut(cuts=cuts):
                    self._cuts = {
                        (each.what.value, each.actor_id): CutRow(
                            what=each.what.value,
                            actor_id=key(each.actor_id),
                            journal_seq=record.seq,
                            before=each.before,
                        )
                        for each in cuts
                    }
                case HoldAdded(kind=kind, held=held) | HoldRemoved(kind=kind, held=held):
                    self._hold = HoldRow(
                        kind=kind.value,
                        held=key(held),
                        journal_seq=record.seq,
                        is_held=isinstance(event, HoldAdded),
                        at=row.at,
                        person=row.person,
                        reason=row.reason,
                    )
                case _:
                    pass

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        for row in self._rows:
            yield RowChange(RECORD, row)
        for cut in self._cuts.values():
            yield RowChange(SAVE_CUTS, cut)
        if self._cuts:
            newest = max(each.journal_seq for each in self._cuts.values())
            yield RowChange(DROP_CUTS, OlderCuts(journal_seq=newest))
        if self._hold is not None:
            yield RowChange(SAVE_HOLDS, self._hold)

    def _row(self, event: OrderEvent, record: Recorded, *, event_no: int) -> OrderRow:
        row = OrderRow(
            order_key=self._key,
            journal_seq=record.seq,
            event_no=event_no,
            change=kind_of(type(event)).removeprefix("order_"),
            at=record.commit.at,
            person=event.by,
            reason=event.reason or None,
        )
        match event:
            case NodeModeSet():
                row.node, row.actor_id = event.node, event.actor_id or None
                row.mode = event.mode.value
            case NodeModeUnset():
                row.node, row.actor_id = event.node, event.actor_id or None
            case ActorPaused() | ActorResumed():
                row.actor_id = event.actor_id
            case BreakerReset():
                row.actor_id, row.expectation_id = event.actor_id, event.expectation_id
            case LayoutSet():
                row.partitions = event.partitions
            case RetentionDeclared():
                row.actor_id = event.actor_id or None
            case HoldAdded() | HoldRemoved():
                row.actor_id = event.held if event.kind is HoldKind.ACTOR else None
            case LoginRequired() | LoginWaived() | RowsCut() | KindsEncrypted() | SubjectErased():
                pass
        return row
