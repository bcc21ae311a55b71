"""The orders read model: a row for each order that people gave of a running stack. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, get_args

from projections.rows import Row, RowChange, Statement, events_of, key, kind_of
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BreakerReset,
    LayoutSet,
    LoginRequired,
    LoginWaived,
    NodeModeSet,
    NodeModeUnset,
    OrderEvent,
)
from streams.ports.log import Recorded

RECORD: Final = Statement(
    name="record_orders", table="orders", keys=("order_key", "journal_seq", "event_no")
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


class OrderFold:
    """The fold of some consecutive commits of orders about one thing."""

    def __init__(self, aggregate: str) -> None:
        self._key = key(aggregate)
        self._rows: list[OrderRow] = []

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it has no orders, and is left out."""
        events = events_of(record, _EVENTS, whose="an order")
        for event_no, event in enumerate(events):
            self._rows.append(self._row(event, record, event_no=event_no))

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        for row in self._rows:
            yield RowChange(RECORD, row)

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
            case LoginRequired() | LoginWaived():
                pass
        return row
