"""What the world is told of orders. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine.orders.order import key_of
from engine.runtime.publish import PublicEvent
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

_NAMES: Final[Mapping[type[OrderEvent], str]] = {
    NodeModeSet: "node.mode_set",
    NodeModeUnset: "node.mode_unset",
    ActorPaused: "actor.paused",
    ActorResumed: "actor.resumed",
    BreakerReset: "circuit_breaker.reset",
    LayoutSet: "layout.set",
    LoginRequired: "login.required",
    LoginWaived: "login.waived",
    RetentionDeclared: "retention.declared",
    RowsCut: "retention.rows_cut",
    HoldAdded: "retention.hold_added",
    HoldRemoved: "retention.hold_removed",
    KindsEncrypted: "subject.kinds_encrypted",
    SubjectErased: "subject.erased",
}


def order_given(event: OrderEvent, *, seq: int, number: int) -> PublicEvent:
    """Return the public event of an order, which is the one with this number in commit `seq`."""
    return PublicEvent(
        name=_NAMES[type(event)],
        id=f"order.{key_of(event)}.{seq}.{number}",
        payload={**msgspec.structs.asdict(event), "journal_seq": seq},
        hops=1,
    )
